/* Answers each line "key in hexadecimal, partition count" with the partition the Java producer would choose. */
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class PartitionOracle {
    public static void main(String[] args) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(",", 2);
            byte[] key = HexFormat.of().parseHex(words[0]);
            out.append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(words[1]))).append('\n');
        }
        System.out.print(out);
    }
}
