use super::*;

/// Queues and a clock that stands still until it is moved.
struct Account {
    sqs: Sqs,
    now: Instant,
}

impl Account {
    fn new() -> Account {
        Account { sqs: Sqs::default(), now: Instant::now() }
    }

    fn ask(&self, operation: &str, request: Value) -> Result<Value, Refusal> {
        self.sqs.perform(operation, &request, self.now)
    }

    /// Makes a queue, and returns its address.
    fn queue(&self, attributes: Value) -> Value {
        let request = json!({ "QueueName": "q", "Attributes": attributes });
        self.ask("CreateQueue", request).unwrap()["QueueUrl"].clone()
    }

    fn receive(&self, queue: &Value) -> Vec<Value> {
        let request = json!({ "QueueUrl": queue, "MaxNumberOfMessages": 10 });
        let answer = self.ask("ReceiveMessage", request).unwrap();
        answer["Messages"].as_array().cloned().unwrap_or_default()
    }

    fn pass(&mut self, secs: u64) {
        self.now += Duration::from_secs(secs);
    }
}

fn code(refused: Result<Value, Refusal>) -> &'static str {
    refused.unwrap_err().code
}

#[test]
fn a_queue_that_exists_can_be_made_again_with_the_same_attributes_only() {
    let account = Account::new();
    let url = account.queue(json!({ "VisibilityTimeout": "60" }));
    assert_eq!(account.queue(json!({})), url);
    let other = json!({ "QueueName": "q", "Attributes": { "VisibilityTimeout": "61" } });
    assert_eq!(code(account.ask("CreateQueue", other)), "QueueNameExists");
    let unknown = json!({ "QueueName": "r", "Attributes": { "Colour": "red" } });
    assert_eq!(code(account.ask("CreateQueue", unknown)), "InvalidAttributeName");
    let named = json!({ "QueueName": "a queue" });
    assert_eq!(code(account.ask("CreateQueue", named)), "InvalidParameterValue");
    assert_eq!(account.ask("GetQueueUrl", json!({ "QueueName": "q" })).unwrap()["QueueUrl"], url);
    account.ask("DeleteQueue", json!({ "QueueUrl": url })).unwrap();
    let gone = account.ask("ReceiveMessage", json!({ "QueueUrl": url }));
    assert_eq!(code(gone), "QueueDoesNotExist");
}

#[test]
fn a_message_is_hidden_from_its_receipt_until_its_time_is_over_and_dropped_for_its_age() {
    let mut account = Account::new();
    let url = account.queue(json!({ "MessageRetentionPeriod": "60", "VisibilityTimeout": "20" }));
    let message = json!({ "QueueUrl": url, "MessageBody": "look" });
    account.ask("SendMessage", message).unwrap();
    assert_eq!(account.receive(&url).len(), 1);
    assert_eq!(account.receive(&url), Vec::<Value>::new());
    account.pass(20);
    assert_eq!(account.receive(&url).len(), 1);
    account.pass(40);
    assert_eq!(account.receive(&url), Vec::<Value>::new(), "as old as it may become");
}

#[test]
fn only_the_last_receipt_is_good() {
    let mut account = Account::new();
    let url = account.queue(json!({ "VisibilityTimeout": "1" }));
    account.ask("SendMessage", json!({ "QueueUrl": url, "MessageBody": "a" })).unwrap();
    let receipt = |account: &Account| account.receive(&url)[0]["ReceiptHandle"].clone();
    let first = receipt(&account);
    account.pass(1);
    let second = receipt(&account);
    let hide = |receipt: &Value| {
        let entry = json!({ "Id": "0", "ReceiptHandle": receipt, "VisibilityTimeout": 0 });
        let request = json!({ "QueueUrl": url, "Entries": [entry] });
        account.ask("ChangeMessageVisibilityBatch", request).unwrap()
    };
    assert_eq!(hide(&first)["Failed"][0]["Code"], "InvalidParameterValue");
    assert_eq!(hide(&json!("AQEB"))["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
    let delete = |receipt: &Value| {
        let request = json!({ "QueueUrl": url, "ReceiptHandle": receipt });
        account.ask("DeleteMessage", request).unwrap();
    };
    delete(&first);
    assert_eq!(hide(&second)["Successful"][0]["Id"], "0");
    delete(&second);
    assert_eq!(account.receive(&url), Vec::<Value>::new());
}

#[test]
fn batches_and_receives_have_bounds() {
    let account = Account::new();
    let url = account.queue(json!({}));
    let send = |ids: &[&str]| {
        let entry = |id: &&str| json!({ "Id": id, "MessageBody": "a" });
        let entries: Vec<Value> = ids.iter().map(entry).collect();
        account.ask("SendMessageBatch", json!({ "QueueUrl": url, "Entries": entries }))
    };
    assert_eq!(code(send(&[])), "EmptyBatchRequest");
    assert_eq!(code(send(&["0", "0"])), "BatchEntryIdsNotDistinct");
    let eleven: Vec<String> = (0..11).map(|id| id.to_string()).collect();
    let eleven: Vec<&str> = eleven.iter().map(String::as_str).collect();
    assert_eq!(code(send(&eleven)), "TooManyEntriesInBatchRequest");
    send(&["0", "1"]).unwrap();
    for most in [0, 11] {
        let request = json!({ "QueueUrl": url, "MaxNumberOfMessages": most });
        assert_eq!(code(account.ask("ReceiveMessage", request)), "InvalidParameterValue");
    }
    let hidden = json!({ "QueueUrl": url, "VisibilityTimeout": 43_201 });
    assert_eq!(code(account.ask("ReceiveMessage", hidden)), "InvalidParameterValue");
    assert_eq!(account.receive(&url).len(), 2);
}

#[test]
fn lists_have_pages() {
    let account = Account::new();
    for name in ["a", "b_1", "b_2", "b_3", "c"] {
        account.ask("CreateQueue", json!({ "QueueName": name })).unwrap();
    }
    let request = json!({ "QueueNamePrefix": "b_", "MaxResults": 2 });
    let first = account.ask("ListQueues", request.clone()).unwrap();
    assert_eq!(first["QueueUrls"].as_array().unwrap().len(), 2);
    let mut rest = request;
    rest["NextToken"] = first["NextToken"].clone();
    let second = account.ask("ListQueues", rest).unwrap();
    let ends_with = |url: &Value, name: &str| url.as_str().unwrap().ends_with(name);
    assert!(ends_with(&second["QueueUrls"][0], "/b_3"), "{second}");
    assert!(second["NextToken"].is_null());
}
