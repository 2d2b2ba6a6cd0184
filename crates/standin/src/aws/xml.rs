//! Writes XML as EC2 does: elements and text, and no attribute except the namespace.

use std::fmt::{Display, Write as _};

#[derive(Debug, Default)]
pub(crate) struct Xml(String);

impl Xml {
    /// A complete answer to an action. `write` adds the elements between the request
    /// id and the end.
    pub(crate) fn answer(action: &str, write: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml(String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#));
        xml.0.push('\n');
        xml.push(format_args!(
            r#"<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">"#
        ));
        xml.text("requestId", request_id());
        write(&mut xml);
        xml.push(format_args!("</{action}Response>"));
        xml.0
    }

    /// A complete answer of IAM to an action. `write` adds its result.
    pub(crate) fn of_iam(action: &str, write: impl FnOnce(&mut Xml)) -> String {
        let mut xml = Xml::default();
        let namespace = "https://iam.amazonaws.com/doc/2010-05-08/";
        xml.push(format_args!(r#"<{action}Response xmlns="{namespace}">"#));
        xml.within(&format!("{action}Result"), write);
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", request_id()));
        xml.push(format_args!("</{action}Response>"));
        xml.0
    }

    /// An error document in EC2's own format.
    pub(crate) fn error(code: &str, message: &str) -> String {
        let mut xml = Xml(String::from(r#"<?xml version="1.0" encoding="UTF-8"?>"#));
        xml.0.push('\n');
        xml.within("Response", |xml| {
            xml.within("Errors", |xml| {
                xml.within("Error", |xml| {
                    xml.text("Code", code);
                    xml.text("Message", message);
                });
            });
            xml.text("RequestID", request_id());
        });
        xml.0
    }

    /// An error document in the format of the other XML services.
    pub(crate) fn query_error(code: &str, message: &str) -> String {
        let mut xml = Xml::default();
        xml.within("ErrorResponse", |xml| {
            xml.within("Error", |xml| {
                xml.text("Type", "Sender");
                xml.text("Code", code);
                xml.text("Message", message);
            });
            xml.text("RequestId", request_id());
        });
        xml.0
    }

    /// The answer of STS to AssumeRoleWithWebIdentity.
    pub(crate) fn assumed(key: &str, session_arn: &str, subject: &str, expires: &str) -> String {
        let mut xml = Xml::default();
        xml.push(format_args!(
            r#"<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">"#
        ));
        xml.within("AssumeRoleWithWebIdentityResult", |xml| {
            xml.within("Credentials", |xml| {
                xml.text("AccessKeyId", key);
                xml.text("SecretAccessKey", "test");
                xml.text("SessionToken", "test");
                xml.text("Expiration", expires);
            });
            xml.text("SubjectFromWebIdentityToken", subject);
            xml.within("AssumedRoleUser", |xml| {
                xml.text("AssumedRoleId", format_args!("{key}:session"));
                xml.text("Arn", session_arn);
            });
        });
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", request_id()));
        xml.push(format_args!("</AssumeRoleWithWebIdentityResponse>"));
        xml.0
    }

    /// Writes an element with text, which is escaped.
    pub(crate) fn text(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.push(format_args!("<{name}>"));
        for letter in value.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                other => self.0.push(other),
            }
        }
        self.push(format_args!("</{name}>"));
    }

    /// Writes an element with text if there is a value.
    pub(crate) fn text_if(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// Writes an element, and lets `write` add its children.
    pub(crate) fn within(&mut self, name: &str, write: impl FnOnce(&mut Xml)) {
        self.push(format_args!("<{name}>"));
        write(self);
        self.push(format_args!("</{name}>"));
    }

    /// Writes a list in EC2's format, with one `item` element per entry.
    pub(crate) fn items<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Xml, T),
    ) {
        self.within(name, |xml| {
            for item in items {
                xml.within("item", |xml| write(xml, item));
            }
        });
    }

    /// Writes a list whose entries are texts.
    pub(crate) fn texts(&mut self, name: &str, items: impl IntoIterator<Item = impl Display>) {
        self.within(name, |xml| {
            for item in items {
                xml.text("item", item);
            }
        });
    }

    /// Writes tags as a `tagSet`, the name that they have in every answer.
    pub(crate) fn tags<'a>(&mut self, tags: impl IntoIterator<Item = (&'a String, &'a String)>) {
        self.items("tagSet", tags, |xml, (key, value)| {
            xml.text("key", key);
            xml.text("value", value);
        });
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a String takes everything");
    }
}

/// Makes a random request id.
pub(crate) fn request_id() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_lists_have_items() {
        let mut xml = Xml::default();
        xml.text("a", "<&>\"");
        xml.texts("b", ["x", "y"]);
        assert_eq!(xml.0, "<a>&lt;&amp;&gt;&quot;</a><b><item>x</item><item>y</item></b>");
    }
}
