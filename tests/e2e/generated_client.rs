//! What openapi-generator's rust has made: a put, a get, a page and a find. Prints what was found.

use keylane::apis::configuration::Configuration;
use keylane::apis::{read_the_state_api as reads, write_to_kafka_api as writes};
use std::error::Error;

const TOPIC: &str = "bookings";

async fn run(url: String, key: &str) -> Result<(), Box<dyn Error>> {
    let client = Configuration { base_path: url, ..Configuration::new() };

    let body = std::env::temp_dir().join(key);
    std::fs::write(&body, r#"{"to": "Zug", "fare": 12.5}"#)?;
    let written = writes::put_key(&client, TOPIC, key, None, None, None, None, None, Some(body.clone())).await?;
    std::fs::remove_file(body)?;
    let (position, wait) = (written.position, Some("wait=20"));
    let record = reads::get_key(
        &client, TOPIC, key, None, None, Some(true), None, None, None, None, None, Some(&position), wait, None, None,
        None, None,
    );
    let record = record.await?;
    let page = reads::get_keys(
        &client, TOPIC, Some(key), None, None, None, Some(5), None, None, None, None, None, None, None,
    );
    let page = page.await?;
    let found = reads::find_records(
        &client, TOPIC, Some(key), Some("-fare"), None, Some(5), None, None, None, None, None, None, None, None,
    );
    let found = found.await?;

    let page_keys: Vec<_> = page.records.into_iter().map(|row| row.key).collect();
    let found_keys: Vec<_> = found.records.unwrap_or_default().into_iter().map(|row| row.key).collect();
    println!("{}", serde_json::to_string(&(record.value, page_keys, found_keys))?);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (url, key) = (arguments.next().unwrap(), arguments.next().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(url, &key))
}
