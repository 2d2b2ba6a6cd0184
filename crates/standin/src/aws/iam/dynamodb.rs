//! What DynamoDB asks IAM about a call.
//!
//! The actions, resources and condition keys are those of the Service Authorization Reference,
//! "Actions, resources, and condition keys for Amazon DynamoDB". Which keys count as leading keys is
//! documented in the DynamoDB Developer Guide: "Using IAM policy conditions for fine-grained access
//! control", "IAM and transactions" (a transaction needs the permissions of its parts) and "IAM
//! policies with PartiQL".

mod expression;
mod partiql;
mod schema;

use std::collections::BTreeSet;

use serde_json::Value;

use super::arns::Arns;
use super::{Authorization, Context};
use partiql::Statement;
pub(crate) use schema::{Schema, Schemas};

/// The expressions of a request that name attributes.
const EXPRESSIONS: [&str; 5] = [
    "ProjectionExpression",
    "UpdateExpression",
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
];

/// The names of the tables whose key schema [`authorizations`] needs.
pub(crate) fn tables(operation: &str, request: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match operation {
        "BatchGetItem" | "BatchWriteItem" => {
            names.extend(
                request["RequestItems"].as_object().into_iter().flatten().map(|it| it.0.clone()),
            );
        }
        "TransactGetItems" | "TransactWriteItems" => {
            let parts = transaction_parts(request);
            names.extend(parts.into_iter().filter_map(|(_, part)| name_of(part)));
        }
        "ExecuteStatement" | "BatchExecuteStatement" | "ExecuteTransaction" => {
            names.extend(
                statements(operation, request).into_iter().filter_map(|it| Some(it.0?.table)),
            );
        }
        "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" | "Query" => {
            names.extend(name_of(request));
        }
        _ => {}
    }
    names
}

/// Everything that a call needs. DynamoDB makes the call only if all of it is allowed.
pub(crate) fn authorizations(
    operation: &str,
    request: &Value,
    arns: &Arns,
    schemas: &Schemas,
) -> Vec<Authorization> {
    let asking = Asking { arns, schemas };
    match operation {
        "GetItem" | "DeleteItem" | "UpdateItem" | "PutItem" => {
            vec![asking.item(operation, request, None)]
        }
        "Query" | "Scan" => vec![asking.search(operation, request)],
        "BatchGetItem" | "BatchWriteItem" => asking.batch(operation, request),
        "TransactGetItems" | "TransactWriteItems" => transaction_parts(request)
            .into_iter()
            .map(|(action, part)| asking.item(action, part, Some(operation)))
            .collect(),
        "ExecuteStatement" | "BatchExecuteStatement" | "ExecuteTransaction" => {
            let enclosing = (operation == "ExecuteTransaction").then_some(operation);
            statements(operation, request)
                .into_iter()
                .map(|(statement, parameters)| asking.statement(statement, parameters, enclosing))
                .collect()
        }
        "CreateTable" => asking.create_table(request),
        "TagResource" | "UntagResource" | "ListTagsOfResource" => {
            let resource = request["ResourceArn"].as_str().unwrap_or("*").to_owned();
            vec![asked(operation, resource, tags(&request["Tags"]))]
        }
        _ => {
            let resource = name_of(request).map_or("*".to_owned(), |name| arns.table(&name));
            vec![asked(operation, resource, Context::default())]
        }
    }
}

struct Asking<'a> {
    arns: &'a Arns,
    schemas: &'a Schemas,
}

impl Asking<'_> {
    /// One item, by its key or as a whole.
    fn item(&self, action: &str, request: &Value, enclosing: Option<&str>) -> Authorization {
        let table = name_of(request).unwrap_or_default();
        let hash = self.schemas.hash(&table, None);
        let key = [&request["Key"][hash], &request["Item"][hash]];
        let mut context = Context::default();
        context.set_all("dynamodb:LeadingKeys", key.into_iter().filter_map(value_of));
        context.set_all("dynamodb:Attributes", attributes(request));
        context.set_if("dynamodb:EnclosingOperation", enclosing);
        common(&mut context, request);
        asked(action, self.arns.table(&table), context)
    }

    /// A query of a table or of an index, or a scan, which has no leading key. For an index the
    /// leading key is the partition key of the index.
    fn search(&self, action: &str, request: &Value) -> Authorization {
        let table = name_of(request).unwrap_or_default();
        let index = request["IndexName"].as_str();
        let mut context = Context::default();
        if action == "Query" {
            let hash = self.schemas.hash(&table, index);
            context.set_all("dynamodb:LeadingKeys", expression::pinned(request, hash));
        }
        context.set_all("dynamodb:Attributes", attributes(request));
        common(&mut context, request);
        let resource = match index {
            Some(index) => self.arns.index(&table, index),
            None => self.arns.table(&table),
        };
        asked(action, resource, context)
    }

    /// All items of a batch, once for each table.
    fn batch(&self, action: &str, request: &Value) -> Vec<Authorization> {
        let one = |(table, wanted): (&String, &Value)| {
            let hash = self.schemas.hash(table, None);
            let writes = wanted.as_array().into_iter().flatten();
            let writes =
                writes.flat_map(|it| [&it["PutRequest"]["Item"], &it["DeleteRequest"]["Key"]]);
            let reads = wanted["Keys"].as_array().into_iter().flatten();
            let items: Vec<&Value> = writes.chain(reads).filter(|it| it.is_object()).collect();
            let mut context = Context::default();
            let keys = items.iter().filter_map(|item| value_of(&item[hash]));
            context.set_all("dynamodb:LeadingKeys", unique(keys));
            let names = items.iter().filter_map(|item| item.as_object());
            let names = names.flat_map(|item| item.keys().cloned());
            context.set_all("dynamodb:Attributes", unique(names.chain(attributes(wanted))));
            common(&mut context, request);
            asked(action, self.arns.table(table), context)
        };
        request["RequestItems"].as_object().into_iter().flatten().map(one).collect()
    }

    /// One statement. One that cannot be read asks for an action that does not exist.
    fn statement(
        &self,
        statement: Option<Statement>,
        parameters: &Value,
        enclosing: Option<&str>,
    ) -> Authorization {
        let Some(statement) = statement else {
            return asked("PartiQL", "*".to_owned(), Context::default());
        };
        let hash = self.schemas.hash(&statement.table, statement.index.as_deref());
        let keys = statement.pinned(hash, parameters);
        let mut context = Context::default();
        if statement.action == "PartiQLSelect" {
            context.set("dynamodb:FullTableScan", keys.is_empty().to_string());
        }
        context.set_all("dynamodb:LeadingKeys", unique(keys));
        context.set_all("dynamodb:Attributes", unique(statement.attributes));
        context.set_if("dynamodb:ReturnValues", statement.returns);
        context.set_if("dynamodb:EnclosingOperation", enclosing);
        let resource = match &statement.index {
            Some(index) => self.arns.index(&statement.table, index),
            None => self.arns.table(&statement.table),
        };
        asked(statement.action, resource, context)
    }

    /// A table with tags also needs the permission to tag it.
    fn create_table(&self, request: &Value) -> Vec<Authorization> {
        let resource = self.arns.table(&name_of(request).unwrap_or_default());
        let context = tags(&request["Tags"]);
        let create = asked("CreateTable", resource.clone(), context.clone());
        let tag = || asked("TagResource", resource, context);
        let tagged = request["Tags"].as_array().is_some_and(|tags| !tags.is_empty());
        std::iter::once(create).chain(tagged.then(tag)).collect()
    }
}

fn asked(action: &str, resource: String, context: Context) -> Authorization {
    Authorization { action: format!("dynamodb:{action}"), resource, context }
}

fn name_of(request: &Value) -> Option<String> {
    request["TableName"].as_str().map(str::to_owned)
}

/// The parts of a transaction, each with the action that it needs.
fn transaction_parts(request: &Value) -> Vec<(&'static str, &Value)> {
    let actions = [
        ("Get", "GetItem"),
        ("Put", "PutItem"),
        ("Update", "UpdateItem"),
        ("Delete", "DeleteItem"),
        ("ConditionCheck", "ConditionCheckItem"),
    ];
    let items = request["TransactItems"].as_array().into_iter().flatten();
    items
        .flat_map(|item| {
            let part = |(name, action): (&str, &'static str)| Some((action, item.get(name)?));
            actions.into_iter().filter_map(part)
        })
        .collect()
}

/// The statements of a call with their parameters; `None` for one that cannot be read.
fn statements<'a>(operation: &str, request: &'a Value) -> Vec<(Option<Statement>, &'a Value)> {
    let list = match operation {
        "ExecuteStatement" => std::slice::from_ref(request),
        "BatchExecuteStatement" => request["Statements"].as_array().map_or(&[][..], Vec::as_slice),
        _ => request["TransactStatements"].as_array().map_or(&[][..], Vec::as_slice),
    };
    let one =
        |it: &'a Value| (it["Statement"].as_str().and_then(Statement::parse), &it["Parameters"]);
    list.iter().map(one).collect()
}

/// The value that the condition of a query requires the partition key to have.
pub(crate) fn query_key(request: &Value, hash: &str) -> Option<String> {
    expression::pinned(request, hash).into_iter().next()
}

/// A PartiQL statement that writes an item.
#[derive(Debug)]
pub(crate) struct StatementWrite<'a> {
    statement: Statement,
    parameters: &'a Value,
}

impl StatementWrite<'_> {
    pub(crate) fn table(&self) -> &str {
        &self.statement.table
    }

    /// The value that the statement requires an attribute to have.
    pub(crate) fn pinned(&self, attribute: &str) -> Option<String> {
        self.statement.pinned(attribute, self.parameters).into_iter().next()
    }
}

/// The statements of a request; `None` in place of one that does not write.
pub(crate) fn statement_writes<'a>(
    operation: &str,
    request: &'a Value,
) -> Vec<Option<StatementWrite<'a>>> {
    let write = |(statement, parameters): (Option<Statement>, &'a Value)| {
        let statement = statement.filter(|statement| statement.action != "PartiQLSelect")?;
        Some(StatementWrite { statement, parameters })
    };
    statements(operation, request).into_iter().map(write).collect()
}

/// The keys that have the same meaning for each action that has them. A parameter that the request
/// leaves out is absent: AWS does not document whether its default counts.
fn common(context: &mut Context, request: &Value) {
    for (key, parameter) in [
        ("dynamodb:Select", "Select"),
        ("dynamodb:ReturnValues", "ReturnValues"),
        ("dynamodb:ReturnConsumedCapacity", "ReturnConsumedCapacity"),
    ] {
        context.set_if(key, request[parameter].as_str());
    }
}

/// The names of all attributes that a request names.
fn attributes(request: &Value) -> Vec<String> {
    let of = |name: &str| request[name].as_object().into_iter().flatten().map(|it| it.0.clone());
    let listed = request["AttributesToGet"].as_array().into_iter().flatten();
    let listed = listed.filter_map(|name| name.as_str().map(str::to_owned));
    let texts = EXPRESSIONS.iter().filter_map(|name| request[name].as_str());
    let expressions =
        texts.flat_map(|text| expression::names(text, &request["ExpressionAttributeNames"]));
    unique(of("Key").chain(of("Item")).chain(listed).chain(expressions))
}

fn unique(values: impl IntoIterator<Item = String>) -> Vec<String> {
    values.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

/// The text of a key's value, whose type is text, number or binary.
fn value_of(value: &Value) -> Option<String> {
    let text = ["S", "N", "B"].iter().find_map(|kind| value.get(kind)?.as_str());
    text.map(str::to_owned)
}

fn tags(tags: &Value) -> Context {
    let mut context = Context::default();
    let tags = tags.as_array().into_iter().flatten();
    let tags: Vec<(&str, &str)> =
        tags.filter_map(|tag| Some((tag["Key"].as_str()?, tag["Value"].as_str()?))).collect();
    super::request_tags(&mut context, tags);
    context
}

#[cfg(test)]
mod tests;
