// What openapi-generator's go has made: a put, a get, a page and a find. Prints what was found.
package main

import (
	"context"
	"encoding/json"
	"os"

	keylane "example.org/keylane/client"
)

const topic = "bookings"

func main() {
	url, key := os.Args[1], os.Args[2]
	configuration := keylane.NewConfiguration()
	configuration.Servers = keylane.ServerConfigurations{{URL: url}}
	client, ctx := keylane.NewAPIClient(configuration), context.Background()
	reads, writes := client.ReadTheStateAPI, client.WriteToKafkaAPI

	written, _, err := writes.PutKey(ctx, topic, key).Body(file(`{"to": "Zug", "fare": 12.5}`)).Execute()
	check(err)
	get := reads.GetKey(ctx, topic, key).Envelope(true).KeylaneMinPosition(written.GetPosition()).Prefer("wait=20")
	record, _, err := get.Execute()
	check(err)
	page, _, err := reads.GetKeys(ctx, topic).Prefix(key).Limit(5).Execute()
	check(err)
	found, _, err := reads.FindRecords(ctx, topic).Prefix(key).Order("-fare").Limit(5).Execute()
	check(err)

	pageKeys, foundKeys := []any{}, []any{}
	for _, row := range page.Records {
		pageKeys = append(pageKeys, row.Key)
	}
	for _, row := range found.Records {
		foundKeys = append(foundKeys, row.Key)
	}
	check(json.NewEncoder(os.Stdout).Encode([]any{record.Value, pageKeys, foundKeys}))
}

// file returns what a body of bytes is given as.
func file(text string) *os.File {
	opened, err := os.CreateTemp("", "body")
	check(err)
	_, err = opened.WriteString(text)
	check(err)
	_, err = opened.Seek(0, 0)
	check(err)
	return opened
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
