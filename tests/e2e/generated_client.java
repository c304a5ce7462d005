import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.ReadTheStateApi;
import org.openapitools.client.api.ReadTheStateApi.APIFindRecordsRequest;
import org.openapitools.client.api.ReadTheStateApi.APIGetKeyRequest;
import org.openapitools.client.api.ReadTheStateApi.APIGetKeysRequest;
import org.openapitools.client.api.WriteToKafkaApi;
import org.openapitools.client.api.WriteToKafkaApi.APIPutKeyRequest;

/** What openapi-generator's java has made: a put, a get, a page and a find. Prints what was found. */
class GeneratedClient {
    static final String TOPIC = "bookings";

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0], key = arguments[1];
        var client = new ApiClient();
        client.updateBaseUri(url);
        var reads = new ReadTheStateApi(client);
        var writes = new WriteToKafkaApi(client);

        Path body = Files.writeString(Files.createTempFile("body", null), "{\"to\": \"Zug\", \"fare\": 12.5}");
        var put = APIPutKeyRequest.newBuilder().topic(TOPIC).key(key).body(body.toFile());
        String position = writes.putKey(put.build()).getPosition();
        var get = APIGetKeyRequest.newBuilder().topic(TOPIC).key(key).envelope(true);
        var record = reads.getKey(get.keylaneMinPosition(position).prefer("wait=20").build());
        var page = reads.getKeys(APIGetKeysRequest.newBuilder().topic(TOPIC).prefix(key).limit(5).build());
        var find = APIFindRecordsRequest.newBuilder().topic(TOPIC).prefix(key).order("-fare").limit(5);
        var found = reads.findRecords(find.build());

        var pageKeys = page.getRecords().stream().map(row -> row.getKey()).toList();
        var foundKeys = found.getRecords().stream().map(row -> row.getKey()).toList();
        var printed = List.of(record.getValue(), pageKeys, foundKeys);
        System.out.println(client.getObjectMapper().writeValueAsString(printed));
    }
}
