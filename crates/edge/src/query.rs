//! Parameters in the query of a request target.

use std::borrow::Cow;

/// Returns the parameters of a query as (name, value), decoded as of a form.
///
/// Shape: one without an escape is borrowed, and its bytes are read once.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter_map(|parameter| {
        if parameter.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
            return form_urlencoded::parse(parameter.as_bytes()).next();
        }
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        (!parameter.is_empty()).then_some((Cow::Borrowed(name), Cow::Borrowed(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parameters_are_those_of_a_form(query in "([a-zé&=%+?]|%[0-9a-f]{2}){0,40}") {
            let parameters: Vec<_> = parameters(&query).collect();
            let of_form: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
            prop_assert_eq!(parameters, of_form);
        }
    }

    #[test]
    fn a_parameter_without_an_escape_is_borrowed() {
        for (name, value) in parameters("since=a1&&wait=25&k=") {
            assert!(matches!(
                (name, value),
                (Cow::Borrowed(_), Cow::Borrowed(_))
            ));
        }
    }
}
