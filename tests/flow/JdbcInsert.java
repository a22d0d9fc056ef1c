/* Inserts one message as an application on JDBC does, each value through the setter that is natural for it. */
import java.nio.charset.StandardCharsets;
import java.sql.DriverManager;
import java.time.OffsetDateTime;
import java.util.UUID;

class JdbcInsert {
    /* Arguments: the JDBC URL; the payload comes on standard input. Prints the returned message ids. */
    public static void main(String[] args) throws Exception {
        String payload = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        try (var connection = DriverManager.getConnection(args[0])) {
            var insert = connection.prepareStatement(
                "insert into outbox.message (message_id, topic, key, partition, payload, headers, available_at)"
                + " values (?, ?, ?, ?, ?, ?::jsonb, ?) returning message_id");
            insert.setObject(1, UUID.fromString("00000000-0000-4000-8000-00000000000a"));
            insert.setString(2, "orders");
            insert.setString(3, "k\\1");
            insert.setInt(4, 3);
            insert.setString(5, payload);
            insert.setString(6, "{\"trace\": \"a\\\\b\"}");
            insert.setObject(7, OffsetDateTime.parse("2026-01-02T03:04:05Z"));
            print(insert.executeQuery());

            var bytes = connection.prepareStatement(
                "insert into outbox.message (topic, payload_bytes) values (?, ?) returning message_id");
            bytes.setString(1, "orders");
            bytes.setBytes(2, payload.getBytes(StandardCharsets.UTF_8));
            print(bytes.executeQuery());

            var publish = connection.prepareStatement("select outbox.publish(?, ?, ?)");
            publish.setString(1, "orders");
            publish.setString(2, "k");
            publish.setString(3, payload);
            print(publish.executeQuery());
        }
    }

    static void print(java.sql.ResultSet rows) throws Exception {
        rows.next();
        System.out.println(rows.getString(1));
    }
}
