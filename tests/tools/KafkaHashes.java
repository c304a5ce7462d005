import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

/**
 * Prints the golden vectors of tests/unit/golden/murmur2.csv by Kafka's own code; the README there has the command.
 * Each line: key in hex, Utils.murmur2 of it, its partition of 9, of 30 and of 1000 as the Java producer takes it.
 */
public final class KafkaHashes {
    private static final int[] PARTITION_COUNTS = {9, 30, 1000};

    public static void main(String[] arguments) {
        System.out.println("key_hex,murmur2,of_9,of_30,of_1000");
        for (String text : new String[] {"", "0", "a", "kafka", "N14228", "N0EGMQ", "customer-0000012345", "Zürich", "東京"}) {
            print(text.getBytes(java.nio.charset.StandardCharsets.UTF_8));
        }
        for (int value = 0; value < 256; value += 5) {
            print(new byte[] {(byte) value});
        }
        for (int length = 1; length <= 16; length++) {
            for (int value : new int[] {0x00, 0x7f, 0x80, 0xff}) {
                byte[] key = new byte[length];
                java.util.Arrays.fill(key, (byte) value);
                print(key);
            }
        }
        Random random = new Random(20130101);
        for (int length = 0; length <= 300; length++) {
            byte[] key = new byte[length];
            random.nextBytes(key);
            print(key);
        }
    }

    private static void print(byte[] key) {
        StringBuilder line = new StringBuilder(HexFormat.of().formatHex(key));
        line.append(',').append(Utils.murmur2(key));
        for (int count : PARTITION_COUNTS) {
            int partition = Utils.toPositive(Utils.murmur2(key)) % count;
            if (partition != BuiltInPartitioner.partitionForKey(key, count)) {
                throw new IllegalStateException("the Java producer takes another partition");
            }
            line.append(',').append(partition);
        }
        System.out.println(line);
    }
}
