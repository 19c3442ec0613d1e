//! Rows as records for programs: JSON Lines and CSV.

use serde::Serialize;
use serde_json::Value;

/// One object a line.
pub fn to_json<T: Serialize>(rows: &[T]) -> String {
    rows.iter()
        .map(|row| serde_json::to_string(row).expect("a row has only text keys") + "\n")
        .collect()
}

/// One line per row; nested figures become `outer.inner` columns, lists are joined with `; `. A column that a row lacks is empty.
pub fn to_csv<T: Serialize>(rows: &[T]) -> String {
    let flat: Vec<Vec<(String, String)>> = rows
        .iter()
        .map(|row| {
            let mut cells = Vec::new();
            flatten("", &serde_json::to_value(row).expect("a row has only text keys"), &mut cells);
            cells
        })
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for (name, _) in flat.iter().flatten() {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
    }
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut write =
        |record: Vec<&str>| out.write_record(record).expect("writing to memory does not fail");
    write(columns.clone());
    for row in &flat {
        let cell = |column: &&str| {
            row.iter().find(|(name, _)| name == column).map_or("", |(_, v)| v.as_str())
        };
        write(columns.iter().map(cell).collect());
    }
    String::from_utf8(out.into_inner().expect("writing to memory does not fail"))
        .expect("cells are text")
}

fn flatten(prefix: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let name =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&name, inner, cells);
            }
        }
        Value::Array(items) => {
            let text: Vec<String> = items.iter().map(plain).collect();
            cells.push((prefix.to_owned(), text.join("; ")));
        }
        other => cells.push((prefix.to_owned(), plain(other))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_flattens_and_fills_missing_columns() {
        let rows = [
            serde_json::json!({"a": 1, "b": {"c": "x,y"}}),
            serde_json::json!({"a": null, "d": [1, 2]}),
        ];
        assert_eq!(to_csv(&rows), "a,b.c,d\n1,\"x,y\",\n,,1; 2\n");
    }
}
