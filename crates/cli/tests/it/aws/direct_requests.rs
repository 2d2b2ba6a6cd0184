//! Requests that a test sends to the emulators and the metadata service itself, past the program and
//! the gateway.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ondeck_standin::emulators::Emulators;
use serde_json::{Value, json};

/// Every item of the table whose name begins so, as DynamoDB has it.
pub(crate) fn items(table: &str) -> Vec<Value> {
    let dynamodb = Emulators::running().dynamodb;
    let ask = |operation: &str, content: &Value| {
        let target = format!("DynamoDB_20120810.{operation}");
        ask(&dynamodb, &target, content)
    };
    let tables = ask("ListTables", &json!({ "ExclusiveStartTableName": table }));
    let name = tables["TableNames"][0].as_str().unwrap();
    assert!(name.starts_with(table), "{tables}");
    let (mut items, mut scan) = (Vec::new(), json!({ "TableName": name }));
    loop {
        let page = ask("Scan", &scan);
        items.extend(page["Items"].as_array().unwrap().iter().cloned());
        match &page["LastEvaluatedKey"] {
            Value::Null => return items,
            last => scan["ExclusiveStartKey"] = last.clone(),
        }
    }
}

/// The names of the tables that begin so.
pub(crate) fn tables(prefix: &str) -> Vec<String> {
    let dynamodb = Emulators::running().dynamodb;
    let request = json!({ "ExclusiveStartTableName": prefix });
    let listed = ask(&dynamodb, "DynamoDB_20120810.ListTables", &request);
    let names = listed["TableNames"].as_array().unwrap().iter().filter_map(Value::as_str);
    names.take_while(|name| name.starts_with(prefix)).map(str::to_owned).collect()
}

/// Puts this item into the table whose name begins so, in place of the one with its key.
pub(crate) fn put_item(table: &str, item: &Value) {
    let dynamodb = Emulators::running().dynamodb;
    let name = tables(table).remove(0);
    let request = json!({ "TableName": name, "Item": item });
    ask(&dynamodb, "DynamoDB_20120810.PutItem", &request);
}

/// The queues whose names begin so: their addresses and attributes.
pub(crate) fn queues(prefix: &str) -> Vec<(String, Value)> {
    let found = ask_sqs("ListQueues", &json!({ "QueueNamePrefix": prefix }));
    let urls = found["QueueUrls"].as_array().into_iter().flatten();
    urls.map(|url| {
        let request = json!({ "QueueUrl": url, "AttributeNames": ["All"] });
        let attributes = ask_sqs("GetQueueAttributes", &request)["Attributes"].clone();
        (url.as_str().unwrap().to_owned(), attributes)
    })
    .collect()
}

/// Every message that is to be had from queues of tickets whose names begin so. They stay where they are.
pub(crate) fn messages(queues: &str) -> Vec<Value> {
    let found = ask_sqs("ListQueues", &json!({ "QueueNamePrefix": queues }));
    let urls = found["QueueUrls"].as_array().unwrap().iter();
    urls.filter(|url| !is_of_machine(url.as_str().unwrap()))
        .flat_map(|url| {
            let all = json!(["All"]);
            let receive = json!({
                "QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0,
                "MessageAttributeNames": all, "MessageSystemAttributeNames": all,
            });
            let answer = ask_sqs("ReceiveMessage", &receive);
            answer["Messages"].as_array().cloned().unwrap_or_default()
        })
        .collect()
}

/// Whether a queue is one by which a machine is woken.
pub(crate) fn is_of_machine(url: &str) -> bool {
    url.rsplit('/').next().is_some_and(|name| name.contains('_'))
}

/// Asks the emulator of SQS.
pub(crate) fn ask_sqs(operation: &str, content: &Value) -> Value {
    ask(&Emulators::running().ministack, &format!("AmazonSQS.{operation}"), content)
}

/// The answer of CloudWatch Logs; `null` if it refuses.
pub(crate) fn ask_logs(operation: &str, content: &Value) -> Value {
    let body = content.to_string();
    let headers = signed(&format!("Logs_20140328.{operation}"), "logs", &body);
    let (_, answer) = exchange(&Emulators::running().ministack, "POST /", &headers, &body);
    serde_json::from_str(&answer).unwrap_or_default()
}

/// Stores a secret parameter of SSM.
pub(crate) fn put_parameter(name: &str, value: &str) {
    let content = json!({ "Name": name, "Value": value, "Type": "SecureString" });
    store("AmazonSSM.PutParameter", "ssm", &content);
}

/// Stores a secret of Secrets Manager and returns its ARN.
pub(crate) fn create_secret(name: &str, value: &str) -> String {
    let content = json!({ "Name": name, "SecretString": value });
    let created = store("secretsmanager.CreateSecret", "secretsmanager", &content);
    created["ARN"].as_str().unwrap().to_owned()
}

fn store(target: &str, service: &str, content: &Value) -> Value {
    let body = content.to_string();
    let headers = signed(target, service, &body);
    let answer = send(&Emulators::running().ministack, "POST /", &headers, &body);
    serde_json::from_str(&answer).unwrap()
}

/// What a machine's metadata service gives it to sign with.
pub(crate) fn machine_keys(metadata: &str, role: &str) -> Value {
    let ttl = "X-aws-ec2-metadata-token-ttl-seconds: 60\r\nContent-Length: 0\r\n";
    let token = send(metadata, "PUT /latest/api/token", ttl, "");
    let path = format!("GET /latest/meta-data/iam/security-credentials/{role}");
    let keys = send(metadata, &path, &format!("X-aws-ec2-metadata-token: {token}\r\n"), "");
    serde_json::from_str(&keys).unwrap()
}

/// One call. Emulators look at no signature, only at whose it claims to be.
fn ask(url: &str, target: &str, content: &Value) -> Value {
    let service = if target.starts_with("DynamoDB") { "dynamodb" } else { "sqs" };
    let body = content.to_string();
    let headers = signed(target, service, &body);
    serde_json::from_str(&send(url, "POST /", &headers, &body)).unwrap()
}

fn signed(target: &str, service: &str, body: &str) -> String {
    format!(
        "X-Amz-Target: {target}\r\nContent-Type: application/x-amz-json-1.0\r\n\
         Content-Length: {}\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=test/20250531/us-east-1/{service}/\
         aws4_request, SignedHeaders=host, Signature=0\r\n",
        body.len(),
    )
}

/// One request, and the body of its answer, which must be a success.
fn send(url: &str, what: &str, headers: &str, body: &str) -> String {
    let (head, body) = exchange(url, what, headers, body);
    assert!(head.contains(" 200 "), "{what}: {head} {body}");
    body
}

/// One request on a connection of its own, and the head and the body of its answer.
fn exchange(url: &str, what: &str, headers: &str, body: &str) -> (String, String) {
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let request = format!("{what} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n{body}");
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}
