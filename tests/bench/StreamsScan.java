import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.function.Predicate;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A table of Kafka Streams that answers finds of bench_find.py as its interactive queries can: by a scan of its
 * store. Arguments: bootstrap servers, topic, port, folder of the state. GET /keys/KEY, and GET
 * /topics/TOPIC/find as Keylane has it: conditions on the fields of a flat JSON value, and an order.
 */
public class StreamsScan {
    private static final String STORE = "rows";
    private static final int LIMIT = 100;
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Row(byte[] key, byte[] value, JsonNode fields) {}

    private final KafkaStreams streams;

    private StreamsScan(KafkaStreams streams) {
        this.streams = streams;
    }

    public static void main(String[] arguments) throws IOException {
        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
            arguments[1], Consumed.with(Serdes.Bytes(), Serdes.ByteArray()), Materialized.as(STORE));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "scan");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        StreamsScan scan = new StreamsScan(streams);
        HttpServer server = HttpServer.create(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[2])), 0);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/keys/", exchange -> scan.answer(exchange, scan::one));
        server.createContext("/topics/", exchange -> scan.answer(exchange, scan::find));
        server.start();
    }

    private interface Question {
        byte[] ask(HttpExchange exchange) throws IOException;
    }

    private void answer(HttpExchange exchange, Question question) throws IOException {
        try (exchange) {
            byte[] body;
            int status = 200;
            try {
                body = question.ask(exchange);
            } catch (Exception error) { // the store is not there while partitions are assigned
                status = 503;
                body = error.toString().getBytes(StandardCharsets.UTF_8);
            }
            exchange.sendResponseHeaders(body == null ? 404 : status, body == null ? -1 : body.length);
            if (body != null) {
                exchange.getResponseBody().write(body);
            }
        }
    }

    private ReadOnlyKeyValueStore<Bytes, byte[]> store() {
        return streams.store(
            StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.keyValueStore()));
    }

    private byte[] one(HttpExchange exchange) {
        String key = exchange.getRequestURI().getPath().substring("/keys/".length());
        return store().get(Bytes.wrap(key.getBytes(StandardCharsets.UTF_8)));
    }

    private byte[] find(HttpExchange exchange) throws IOException {
        Predicate<JsonNode> isMet = fields -> true;
        String order = null;
        for (String pair : exchange.getRequestURI().getRawQuery().split("&")) {
            String[] parts = pair.split("=", 2);
            String asked = URLDecoder.decode(parts[1], StandardCharsets.UTF_8);
            if (parts[0].equals("order")) {
                order = asked;
            } else {
                isMet = isMet.and(condition(parts[0], asked));
            }
        }
        List<Row> rows = new ArrayList<>();
        long scanned = 0;
        try (KeyValueIterator<Bytes, byte[]> all = store().all()) {
            while (all.hasNext() && (order != null || rows.size() < LIMIT)) {
                KeyValue<Bytes, byte[]> next = all.next();
                JsonNode fields = JSON.readTree(next.value);
                scanned++;
                if (isMet.test(fields)) {
                    rows.add(new Row(next.key.get(), next.value, fields));
                }
            }
        }
        if (order != null) {
            String name = order.replaceFirst("^-", "");
            Comparator<Row> ascending = Comparator.comparing(row -> row.fields().get(name).decimalValue());
            rows.sort(order.startsWith("-") ? ascending.reversed() : ascending);
        }
        return render(rows.subList(0, Math.min(LIMIT, rows.size())), scanned);
    }

    private static Predicate<JsonNode> condition(String name, String asked) {
        if (asked.contains("..")) {
            String[] ends = asked.split("\\.\\.", 2);
            Double low = ends[0].isEmpty() ? null : Double.valueOf(ends[0]);
            Double high = ends[1].isEmpty() ? null : Double.valueOf(ends[1]);
            return fields -> {
                double value = fields.get(name).doubleValue();
                return (low == null || low <= value) && (high == null || value <= high);
            };
        }
        if (asked.endsWith("*")) {
            String prefix = asked.substring(0, asked.length() - 1);
            return fields -> fields.get(name).textValue().startsWith(prefix);
        }
        return fields -> {
            JsonNode value = fields.get(name);
            return value.isNumber()
                ? value.doubleValue() == Double.parseDouble(asked)
                : asked.equals(value.textValue());
        };
    }

    private static byte[] render(List<Row> rows, long scanned) {
        StringBuilder body = new StringBuilder("{\"records\": [");
        String separator = "";
        for (Row row : rows) {
            body.append(separator).append("{\"key\": \"").append(new String(row.key(), StandardCharsets.UTF_8));
            body.append("\", \"value\": ").append(new String(row.value(), StandardCharsets.UTF_8)).append('}');
            separator = ", ";
        }
        body.append("], \"scanned\": ").append(scanned).append('}');
        return body.toString().getBytes(StandardCharsets.UTF_8);
    }
}
