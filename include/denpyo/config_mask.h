/* config_mask.h: values of options as they may be shown: without passwords. */
#ifndef DENPYO_CONFIG_MASK_H
#define DENPYO_CONFIG_MASK_H

#define CONFIG_MASK "****"

/* A libpq conninfo, as words or as URI, with passwords replaced by CONFIG_MASK. The caller frees. */
char *config_mask_conninfo(const char *conninfo);

/* The value of a librdkafka property, or CONFIG_MASK when the property holds a secret. Borrowed or static. */
const char *config_mask_property(const char *name, const char *value);

#endif
