import java.nio.file.Files;
import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.JSON;
import org.openapitools.client.api.ReadTheStateApi;
import org.openapitools.client.api.WriteToKafkaApi;

/** What openapi-generator's java has made: a put, a get, a page and a find. Prints what was found. */
class GeneratedClient {
    static final String TOPIC = "bookings";

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], key = arguments[1];
        var client = new ApiClient().setBasePath(url);
        var reads = new ReadTheStateApi(client);
        var writes = new WriteToKafkaApi(client);

        var body = Files.writeString(Files.createTempFile("body", null), "{\"to\": \"Zug\", \"fare\": 12.5}");
        var written = writes.putKey(TOPIC, key).body(body.toFile()).execute();
        Files.delete(body);
        var get = reads.getKey(TOPIC, key).envelope(true).keylaneMinPosition(written.getPosition());
        var record = get.prefer("wait=20").execute();
        var page = reads.getKeys(TOPIC).prefix(key).limit(5).execute();
        var found = reads.findRecords(TOPIC).prefix(key).order("-fare").limit(5).execute();

        var pageKeys = page.getRecords().stream().map(row -> row.getKey()).toList();
        var foundKeys = found.getRecords().stream().map(row -> row.getKey()).toList();
        System.out.println(JSON.getGson().toJson(List.of(record.getValue(), pageKeys, foundKeys)));
        System.exit(0); // threads of OkHttp's would live for minutes
    }
}
