//! A schema's JSON text: from a table in the file, or from a file beside it.
//!
//! The order of the file is kept: `*` returns a collection's fields in this order.

use serde_json::Value as Json;
use toml::de::DeValue;

use super::file::read_file as read_bytes;
use super::table::{ConfigTable, Item};

/// Longest schema file.
pub const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// Reads `schema`: a table becomes JSON text, text is the path of a JSON file relative to the configuration file.
pub(crate) fn read(item: &Item<'_>) -> Option<String> {
    match item.value() {
        DeValue::Table(_) => {
            let mut text = String::new();
            write_table(&item.table()?, &mut text);
            Some(text)
        }
        DeValue::String(path) => read_file(item, path),
        _ => {
            item.mismatch("a table, or the path of a JSON file");
            None
        }
    }
}

/// A TOML value of the file as JSON text.
pub fn json_text(item: &Item<'_>) -> String {
    let mut text = String::new();
    write_value(item, &mut text);
    text
}

fn read_file(item: &Item<'_>, path: &str) -> Option<String> {
    let full = item.source().relative(path);
    let bytes = read_bytes(&full, SCHEMA_BYTES_MAX).map_err(|error| error.to_string());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_string()));
    text.map_err(|error| item.mistake(format!("cannot read the schema {}: {error}", full.display()), "")).ok()
}

fn write_table(table: &ConfigTable<'_>, out: &mut String) {
    out.push('{');
    for (number, item) in table.entries().iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(&Json::from(item.name()).to_string());
        out.push(':');
        write_value(item, out);
    }
    out.push('}');
}

fn write_value(item: &Item<'_>, out: &mut String) {
    match item.value() {
        DeValue::String(text) => out.push_str(&Json::from(text.as_ref()).to_string()),
        DeValue::Integer(integer) => match i128::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) => out.push_str(&number.to_string()),
            Err(_) => item.mistake(format!("`{}` is {integer}", item.path()), "an integer of up to 127 bits"),
        },
        DeValue::Float(float) => match float.as_str().parse().ok().and_then(serde_json::Number::from_f64) {
            Some(number) => out.push_str(&number.to_string()),
            None => item.mistake(format!("`{}` is {float}", item.path()), "a finite number"),
        },
        DeValue::Boolean(boolean) => out.push_str(if *boolean { "true" } else { "false" }),
        DeValue::Datetime(_) => item.mismatch("what JSON has: text, numbers, true, false, lists, tables"),
        DeValue::Array(_) => {
            out.push('[');
            for (number, item) in item.list().unwrap_or_default().iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        DeValue::Table(_) => {
            if let Some(table) = item.table() {
                write_table(&table, out);
            }
        }
    }
}
