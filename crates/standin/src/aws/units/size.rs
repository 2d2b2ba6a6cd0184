//! The size of an item, as DynamoDB bills it.

use serde_json::Value;

use super::Item;

/// The bytes of an item: the names and the values of its attributes.
pub(super) fn item_bytes(item: &Item) -> usize {
    item.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
}

/// The bytes of a value such as `{"S": "text"}`.
fn value_bytes(value: &Value) -> usize {
    let Some((kind, content)) = value.as_object().and_then(|value| value.iter().next()) else {
        return 0;
    };
    let text = content.as_str().unwrap_or_default();
    let texts = || content.as_array().into_iter().flatten().filter_map(Value::as_str);
    match kind.as_str() {
        "S" => text.len(),
        "N" => number_bytes(text),
        "B" => binary_bytes(text),
        "SS" => texts().map(str::len).sum(),
        "NS" => texts().map(number_bytes).sum(),
        "BS" => texts().map(binary_bytes).sum(),
        "L" => {
            let values = content.as_array().into_iter().flatten();
            3 + values.map(|value| 1 + value_bytes(value)).sum::<usize>()
        }
        "M" => {
            let values = content.as_object().into_iter().flatten();
            3 + values.map(|(name, value)| 1 + name.len() + value_bytes(value)).sum::<usize>()
        }
        // BOOL and NULL.
        _ => 1,
    }
}

/// One byte for two significant digits, and one more.
fn number_bytes(number: &str) -> usize {
    let digits = number.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
    digits.trim_matches('0').len().div_ceil(2) + 1
}

/// The length of what a Base64 text stands for.
fn binary_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_developer_guide() {
        let cases = [
            (json!({"S": "grün"}), 5),
            (json!({"N": "0"}), 1),
            (json!({"N": "1760000000"}), 3),
            (json!({"N": "-12.345"}), 4),
            (json!({"B": "aGVsbG8="}), 5),
            (json!({"BOOL": true}), 1),
            (json!({"NULL": true}), 1),
            (json!({"SS": ["a", "bc"]}), 3),
            (json!({"NS": ["1", "200"]}), 4),
            (json!({"L": []}), 3),
            (json!({"L": [{"S": "ab"}, {"N": "7"}]}), 3 + 1 + 2 + 1 + 2),
            (json!({"M": {"key": {"S": "ab"}}}), 3 + 1 + 3 + 2),
        ];
        for (value, bytes) in cases {
            let item = json!({"name": value});
            assert_eq!(item_bytes(item.as_object().unwrap()), 4 + bytes, "{item}");
        }
    }
}
