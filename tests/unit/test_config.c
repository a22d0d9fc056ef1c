/* test_config.c: the option table, precedence, faults that name what the user wrote, masks, and any bytes as a file. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "denpyo/config.h"
#include "denpyo/config_file.h"
#include "denpyo/config_mask.h"
#include "denpyo/nearest.h"
#include "random.h"

static struct config config;
static struct fault fault;
static const char *words[16];
static int word_count;
static char file[40];

/* Writes the text into a fresh file and makes it the configuration file. */
static void use_file(const char *text) {
    snprintf(file, sizeof file, "/tmp/denpyo-config-XXXXXX");
    int fd = mkstemp(file);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    setenv("DENPYO_CONFIG", file, 1);
}

static bool load(const char *const *argv) {
    int argc = 0;
    while (argv[argc])
        argc++;
    bool ok = config_load(&config, argc, (char **)argv, words, &word_count, &fault);
    if (*file)
        unlink(file);
    return ok;
}
#define LOAD(...) load((const char *const[]){__VA_ARGS__, NULL})
#define LOAD_NOTHING() load((const char *const[]){NULL})

static void assert_fault(const char *part) {
    cr_assert_eq(fault.class, FAULT_USAGE);
    cr_assert_not_null(strstr(fault.text, part), "\"%s\" does not say \"%s\"", fault.text, part);
}

Test(config, defaults_are_as_the_table_says) {
    cr_assert(LOAD_NOTHING(), "%s", fault.text);
    cr_assert_str_eq(config.schema, "outbox");
    cr_assert_eq(config.batch_rows, 10000);
    cr_assert(config.prepare);
    cr_assert_eq(config.log_level, LOG_INFO);
    for (size_t i = 0; i < config_option_count; i++) {
        char buffer[CONFIG_NAME_SIZE];
        cr_assert_str_eq(config_value(&config, &config_options[i], buffer), config_options[i].fallback);
        cr_assert_str_eq(config_origin(&config, config_options[i].name), "default");
    }
    config_free(&config);
}

Test(config, later_wins_and_the_origin_is_told) {
    use_file("{\"batch\": {\"rows\": 1, \"bytes\": 5000}, \"log.format\": \"json\", \"kafka\": {\"acks\": 1, "
             "\"linger.ms\": 5}}");
    setenv("DENPYO_BATCH_ROWS", "2", 1);
    setenv("DENPYO_SCHEMA", "from_env", 1);
    setenv("DENPYO_KAFKA_LINGER_MS", "6", 1);
    cr_assert(LOAD("--batch-rows", "3", "--kafka", "linger.ms=7", "--kafka=client.id=a=b"), "%s", fault.text);
    cr_assert_eq(config.batch_rows, 3);
    cr_assert_str_eq(config_origin(&config, "batch.rows"), "flag");
    cr_assert_str_eq(config.schema, "from_env");
    cr_assert_str_eq(config_origin(&config, "schema"), "environment");
    cr_assert_eq(config.batch_bytes, 5000);
    cr_assert_str_eq(config_origin(&config, "batch.bytes"), "file");
    cr_assert_eq(config.log_format, LOG_JSON);
    static const char *const wanted[][3] = {
        {"acks", "1", "file"}, {"linger.ms", "7", "flag"}, {"client.id", "a=b", "flag"}};
    cr_assert_eq(config.kafka_count, 3);
    for (size_t i = 0; i < 3; i++) {
        cr_assert_str_eq(config.kafka[i].name, wanted[i][0]);
        cr_assert_str_eq(config.kafka[i].value, wanted[i][1]);
        cr_assert_str_eq(config.kafka[i].origin, wanted[i][2]);
    }
    config_free(&config);
}

Test(config, words_and_options_may_be_mixed) {
    cr_assert(LOAD("one", "--no-progress", "two", "-", "--prepare=off", "--", "--batch-rows"), "%s", fault.text);
    cr_assert_eq(word_count, 4);
    cr_assert_str_eq(words[0], "one");
    cr_assert_str_eq(words[2], "-");
    cr_assert_str_eq(words[3], "--batch-rows");
    cr_assert_not(config.progress);
    cr_assert_not(config.prepare);
    config_free(&config);
}

Test(config, flag_faults_name_flag_value_and_nearest) {
    static const struct {
        const char *first, *second, *part;
    } cases[] = {
        {"--batch-row", "1", "unknown option --batch-row; did you mean --batch-rows?"},
        {"--batchrows=1", NULL, "did you mean --batch-rows?"},
        {"--entirely-different-thing", NULL, "unknown option --entirely-different-thing; \"denpyo config\""},
        {"-x", NULL, "unknown option -x"},
        {"--postgress=password=geheim", NULL, "unknown option --postgress; did you mean --postgres?"},
        {"--no-batch-rows", NULL, "unknown option --no-batch-rows"},
        {"--batch-rows", NULL, "--batch-rows needs a value"},
        {"--batch-rows", "--prepare", "--batch-rows needs a value"},
        {"--batch-rows", "many", "--batch-rows must be a whole number of rows from 1 to 30000, not \"many\""},
        {"--batch-rows", "7 ", "not \"7 \""},
        {"--batch-rows", "0", "--batch-rows must be from 1 to 30000 rows, not 0"},
        {"--batch-rows", "99999999999999999999", "must be from 1 to 30000"},
        {"--log-level", "loud", "--log-level must be one of error|warn|info|debug, not \"loud\""},
        {"--prepare=maybe", NULL, "--prepare must be true or false, not \"maybe\""},
        {"--schema=", NULL, "--schema must not be empty"},
        {"--kafka", "sasl.password:geheim", "--kafka takes name=value"},
        {"--kafka", "=1", "needs a name"},
        {"--kafka", "bootstrap.servers=x", "give the brokers with --brokers"},
        {"--poll-busy-ms", "200", "poll.busy_ms (200, from flag) must not be above poll.idle_ms (100, from default)"},
        {"--config", "/nonexistent/file", "cannot open the configuration file /nonexistent/file: No such file"},
        {"--config", "/tmp", "cannot read the configuration file /tmp: Is a directory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_not(LOAD(cases[i].first, cases[i].second), "%s", cases[i].first);
        assert_fault(cases[i].part);
        cr_assert_null(strstr(fault.text, "geheim"));
    }
}

Test(config, environment_faults_name_the_variable) {
    setenv("DENPYO_BATCH_ROW", "1", 1);
    cr_assert_not(LOAD_NOTHING());
    assert_fault("unknown option DENPYO_BATCH_ROW in the environment; did you mean DENPYO_BATCH_ROWS?");
    unsetenv("DENPYO_BATCH_ROW");
    setenv("DENPYO_BATCH_ROWS", "", 1);
    cr_assert_not(LOAD_NOTHING());
    assert_fault("DENPYO_BATCH_ROWS must be a whole number");
}

Test(config, variables_of_a_kubernetes_service_are_let_pass) {
    setenv("DENPYO_SERVICE_HOST", "10.0.0.1", 1);
    setenv("DENPYO_SERVICE_PORT_HTTP", "80", 1);
    setenv("DENPYO_PORT", "tcp://10.0.0.1:80", 1);
    setenv("DENPYO_PORT_80_TCP_ADDR", "10.0.0.1", 1);
    cr_assert(LOAD_NOTHING(), "%s", fault.text);
    config_free(&config);
}

Test(config, variables_of_our_scripts_are_let_pass_but_not_what_only_begins_like_them) {
    static const char *const passed[] = {
        "DENPYO_BINARY",
        "DENPYO_BUILD",
        "DENPYO_CMAKE",
        "DENPYO_KAFKA_LIBS",
        "DENPYO_PYTHON",
        "DENPYO_QUICKSTART_DIR",
        "DENPYO_TEST_LARGE_MESSAGES",
        "DENPYO_TEST_SMALL_MESSAGES",
    };
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        setenv(passed[i], "x", 1);
    cr_assert(LOAD_NOTHING(), "%s", fault.text);
    cr_assert_eq(config.kafka_count, 0);
    config_free(&config);
    setenv("DENPYO_BUILD_DIR", "x", 1);
    cr_assert_not(LOAD_NOTHING());
    assert_fault("unknown option DENPYO_BUILD_DIR in the environment");
}

static const struct {
    const char *text, *part;
} bad_files[] = {
    {"{\n  \"batch\": {\n    \"row\": 1\n  }\n}", ":3:5: unknown option batch.row; did you mean batch.rows?"},
    {"{\"schema\": \"batch\", \"\\u0062atch\": 1, \"batch.rows\": 0}", ":1:21: unknown option batch"},
    {"{\"batch.rows\": 0}", ":1:2: \"batch.rows\" must be from 1 to 30000 rows, not 0"},
    {"{\"batch.rows\": \"5\"}", ":1:2: \"batch.rows\" must be a number without quotes"},
    {"{\"batch.rows\": 5.5}", "must be a whole number"},
    {"{\"schema\": 5}", "\"schema\" must be text in double quotes"},
    {"{\"prepare\": \"true\"}", "\"prepare\" must be true or false without quotes"},
    {"{\"batch.rows\": null}", "not null"},
    {"{\"batch\": [1]}", "\"batch\" must be text, a number, true or false, not a list"},
    {"{\"kafka\": {\"compression\": {\"type\": \"lz4\"}}}",
     ":1:12: \"kafka.compression\" must be text, a number, true"},
    {"{\"kafka\": 5}", ":1:2: \"kafka\" must be an object of librdkafka properties"},
    {"{\"kafka\": null}", "\"kafka\" must be an object of librdkafka properties"},
    {"{\"config\": \"x\"}", "cannot name another"},
    {"{\n\"batch\": 1,\n}", ":3:1: not valid JSON"},
    {"{\"schema\": \"a\", \"schema\": \"b\"}", "duplicate object key"},
    {"[]", ":1:1: the configuration must be a JSON object"},
    {"", "not valid JSON"},
};

Test(config, file_faults_name_line_and_column) {
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        use_file(bad_files[i].text);
        cr_assert_not(LOAD_NOTHING(), "%s", bad_files[i].text);
        assert_fault(bad_files[i].part);
        cr_assert_eq(strncmp(fault.text, file, strlen(file)), 0);
    }
}

Test(config, editors_may_name_the_schema_in_the_file) {
    use_file("{\"$schema\": \"config.schema.json\", \"schema\": \"s\"}");
    cr_assert(LOAD_NOTHING(), "%s", fault.text);
    cr_assert_str_eq(config.schema, "s");
    config_free(&config);
}

static bool accept_all(void *context, const struct config_leaf *leaf, struct fault *f) {
    (void)f;
    *(size_t *)context += strlen(leaf->name) + strlen(leaf->value);
    return true;
}

static bool refuse_all(void *context, const struct config_leaf *leaf, struct fault *f) {
    ++*(size_t *)context;
    return fault_set(f, FAULT_USAGE, "X", "%s", leaf->name);
}

/* Up to four bytes of `good` become others that JSON or a conninfo cares about; every second time it is cut, too. */
static size_t mutate(char *out, const char *good, size_t size, uint64_t *seed) {
    static const char interesting[] = "\"\\{}[]:, \n\0u0e-1\xff\xc3'=@/?&%";
    memcpy(out, good, size);
    if (random_below(seed, 2))
        size = random_below(seed, size + 1);
    for (uint64_t i = random_below(seed, 5); i > 0 && size > 0; i--)
        out[random_below(seed, size)] = interesting[random_below(seed, sizeof interesting - 1)];
    out[size] = 0;
    return size;
}

Test(config, any_bytes_are_survived_by_the_file_reader) {
    static const char good[] =
        "{\"a\\n\\u00e9\": {\"b\": -2.5e3, \"kafka\": {\"x\": true}}, \"kafka\": {\"acks\": \"all\"}, "
        "\"\": \"\\ud834\\udd1e\", \"list\": [1, null, {}]}";
    size_t faults = 0, visits = 0;
    uint64_t seed = 20;
    for (int round = 0; round < 20000; round++) {
        char bytes[sizeof good];
        size_t size = mutate(bytes, good, sizeof good - 1, &seed);
        struct fault f = {0};
        if (!config_file_parse("f", bytes, size, round % 2 ? accept_all : refuse_all, &visits, &f)) {
            cr_assert_eq(f.class, FAULT_USAGE);
            cr_assert_eq(strncmp(f.text, "f:", 2), 0);
            faults++;
        }
    }
    cr_assert_gt(faults, 1000);
    cr_assert_gt(visits, 1000);
}

Test(config, any_bytes_are_survived_by_the_options) {
    static const char good[] =
        "{\"batch\": {\"rows\": 10, \"bytes\": 5000}, \"postgres\": \"host=a\", \"prepare\": true, "
        "\"kafka\": {\"acks\": \"all\"}, \"log.level\": \"info\"}";
    int fd = memfd_create("config", 0);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    setenv("DENPYO_CONFIG", path, 1);
    size_t accepted = 0, refused = 0;
    uint64_t seed = 21;
    for (int round = 0; round < 5000; round++) {
        char bytes[sizeof good];
        size_t size = mutate(bytes, good, sizeof good - 1, &seed);
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, bytes, size, 0), (ssize_t)size);
        if (LOAD_NOTHING()) {
            accepted++;
            config_free(&config);
        } else {
            cr_assert_eq(fault.class, FAULT_USAGE);
            refused++;
        }
    }
    close(fd);
    cr_assert_gt(accepted, 100);
    cr_assert_gt(refused, 1000);
}

Test(config, any_conninfo_is_masked_without_a_crash) {
    static const char *const good[] = {"host=a password='ge\\'heim' user=b sslpassword = x",
                                       "postgresql://u:geheim@h:1/d?a=b&password=geheim"};
    uint64_t seed = 22;
    for (int round = 0; round < 20000; round++) {
        char text[64];
        mutate(text, good[round % 2], strlen(good[round % 2]), &seed);
        char *masked = config_mask_conninfo(text);
        cr_assert_leq(strlen(masked), (strlen(text) + 1) * (1 + strlen(CONFIG_MASK)));
        free(masked);
    }
}

Test(config, deep_nesting_is_survived) {
    static const char level[] = {'{', '"', 'a', '"', ':'};
    char *deep = malloc(50000 * sizeof level);
    cr_assert_not_null(deep);
    size_t size = 0;
    for (int i = 0; i < 50000; i++, size += sizeof level)
        memcpy(deep + size, level, sizeof level);
    struct fault f = {0};
    size_t visits = 0;
    cr_assert_not(config_file_parse("f", deep, size, accept_all, &visits, &f));
    free(deep);
}

Test(config, passwords_are_masked) {
    static const struct {
        const char *conninfo, *masked;
    } cases[] = {
        {"", ""},
        {"host=a user=b", "host=a user=b"},
        {"host=a password=geheim user=b", "host=a password=**** user=b"},
        {"password = 'ge\\'h eim' host=a", "password = **** host=a"},
        {"password=ge\\ heim sslpassword=geheim", "password=**** sslpassword=****"},
        {"passfile=/a dbname='password=x'", "passfile=/a dbname='password=x'"},
        {"PASSWORD=geheim", "PASSWORD=****"},
        {"password='geheim", "password=****"},
        {"password", "password"},
        {"postgresql://u:geheim@h:5432/d?a=b", "postgresql://u:****@h:5432/d?a=b"},
        {"postgres://u:ge@heim@h", "postgres://u:****@h"},
        {"postgres://u:ge/heim@h", "postgres://u:****@h"},
        {"postgres://u@h:1/d", "postgres://u@h:1/d"},
        {"postgres://h/d?user=u&password=geheim&sslpassword=geheim&a=b",
         "postgres://h/d?user=u&password=****&sslpassword=****&a=b"},
        /* To libpq the first @ before any / ends the password, whatever stands before it. */
        {"postgresql://u:ge?heim@h/d?a=b", "postgresql://u:****@h/d?a=b"},
        {"postgresql://u:ge?a=heim@h", "postgresql://u:****@h"},
        {"postgres://h/d?pass%77ord=geheim&%73slpassword=geheim", "postgres://h/d?pass%77ord=****&%73slpassword=****"},
        {"postgres://h/d?password=geheim&", "postgres://h/d?password=****&"},
        {"password='geheim'user=a", "password=**** user=a"},
        /* Malformed: the rest of a password that nobody quoted. */
        {"password=ge heim host=a rest", "password=**** **** host=a ****"},
        {"user=a password heim", "user=a password ****"},
        {"rest password=geheim", "rest password=****"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *masked = config_mask_conninfo(cases[i].conninfo);
        cr_assert_str_eq(masked, cases[i].masked);
        free(masked);
    }
    cr_assert_str_eq(config_mask_property("sasl.password", "x"), "****");
    cr_assert_str_eq(config_mask_property("ssl.key.pem", "x"), "****");
    cr_assert_str_eq(config_mask_property("ssl.keystore.password", "x"), "****");
    cr_assert_str_eq(config_mask_property("sasl.oauthbearer.client.secret", "x"), "****");
    cr_assert_str_eq(config_mask_property("sasl.username", "x"), "x");
}

Test(config, nearest_is_near_or_nothing) {
    static const char *const known[] = {"status", "show", "check"};
    cr_assert_str_eq(nearest_word("stauts", known, 3), "status");
    cr_assert_str_eq(nearest_word("chekc", known, 3), "check");
    cr_assert_null(nearest_word("publish", known, 3));
    cr_assert_null(nearest_word("", known, 3));
    cr_assert_null(nearest_word("a-word-that-is-longer-than-every-buffer-could-ever-be-expected-to-hold", known, 3));
}
