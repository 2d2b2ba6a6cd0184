//! The errors of EC2.

/// An error answer with EC2's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { status: 400, code, message: message.into() }
    }

    pub(crate) fn missing(parameter: &str) -> Refusal {
        let message = format!("The request must contain the parameter {parameter}");
        Refusal::new("MissingParameter", message)
    }

    pub(crate) fn invalid(parameter: &str, value: &str) -> Refusal {
        let message = format!("Value ({value}) for parameter {parameter} is invalid.");
        Refusal::new("InvalidParameterValue", message)
    }
}
