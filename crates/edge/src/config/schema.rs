//! The JSON schema of the configuration file, made from the table of options.

use super::live::NEEDS_RESTART;
use super::options::{OptionSpec, ROUTE_OPTIONS, SECTIONS, Section, single_options};
use super::{Config, RouteConfig};
use serde_json::{Map, Value, json};

/// A JSON schema for editors and other tools.
///
/// Shape: the schema accepts every file that Dwell accepts, and refuses options that do not exist
/// and values of a wrong type. `dwell check` finds more mistakes.
///
/// Source: JSON Schema, draft 7.
pub fn schema() -> String {
    let sections = SECTIONS.iter();
    let sections: Map<String, Value> = sections
        .map(|section| (section.name.to_owned(), of_section(section)))
        .collect();
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of Dwell",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    });
    format!("{schema:#}\n")
}

fn of_section(section: &Section) -> Value {
    if section.name == "route" {
        let route = RouteConfig::default();
        let options = ROUTE_OPTIONS.iter().map(|spec| of_option(spec, &route));
        let mut items = table(options);
        items["required"] = json!(["prefix"]);
        return json!({
            "description": section.about,
            "type": "array",
            "minItems": 1,
            "items": items,
        });
    }
    let config = Config::default();
    let of_section = single_options().filter(|spec| spec.section == section.name);
    let mut table = table(of_section.map(|spec| of_option(spec, &config)));
    table["description"] = section.about.into();
    table
}

fn table(options: impl Iterator<Item = (String, Value)>) -> Value {
    let options: Map<String, Value> = options.collect();
    json!({ "type": "object", "additionalProperties": false, "properties": options })
}

fn of_option<T>(spec: &OptionSpec<T>, defaults: &T) -> (String, Value) {
    let default = (spec.show)(defaults).parse::<toml::Value>().ok();
    let restart = if NEEDS_RESTART.contains(&spec.full_name().as_str()) {
        " Needs a restart."
    } else {
        ""
    };
    let values = (spec.describe)();
    let mut schema = (spec.schema)();
    schema["description"] = format!("{}{restart} Values: {values}.", spec.about).into();
    schema["default"] = serde_json::to_value(default).unwrap_or_default();
    (spec.name.to_owned(), schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_schema_is_current() {
        assert!(
            include_str!("../../../../docs/dwell.schema.json") == schema(),
            "run dwell check --print-schema > docs/dwell.schema.json"
        );
    }

    #[test]
    fn each_option_has_its_type_and_default() {
        let schema: Value = serde_json::from_str(&schema()).expect("it is JSON");
        let server = &schema["properties"]["server"]["properties"];
        assert_eq!(server["pollers"]["maximum"], 1024);
        assert_eq!(server["listen"]["default"], "127.0.0.1:8080");
        let route = &schema["properties"]["route"]["items"]["properties"];
        assert_eq!(route["prefix"]["pattern"], "^/");
        let named: usize = SECTIONS
            .iter()
            .map(|section| {
                let of_section = &schema["properties"][section.name];
                let table = of_section.get("items").unwrap_or(of_section);
                table["properties"].as_object().map_or(0, Map::len)
            })
            .sum();
        assert_eq!(named, single_options().count() + ROUTE_OPTIONS.len());
    }
}
