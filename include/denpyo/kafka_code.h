/* kafka_code.h: librdkafka's error codes, named and classed. */
#ifndef DENPYO_KAFKA_CODE_H
#define DENPYO_KAFKA_CODE_H

#include <stdbool.h>

/* "UNKNOWN_TOPIC_OR_PART" and a sentence, for a code. Static. */
const char *kafka_code_name(int code);
const char *kafka_code_text(int code);

/* Classes of codes that the relay tells apart. */
bool kafka_code_is_topic(int code);   /* the topic's trouble: missing or not authorized */
bool kafka_code_is_message(int code); /* the broker refused a MessageSet for what is in it: size, time stamp, record */

#endif
