//! Values of config.json and generation_config.json.

use serde_json::Value;

/// The value at a dotted path; numbers select list elements.
pub(crate) fn at<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(root, |v, key| match v {
        Value::Object(members) => members.get(key),
        Value::Array(elements) => elements.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The stop ids, ascending; or whether the generation config is at fault and the text of the value that is no id list.
pub(crate) fn stop_ids(generation: Option<&Value>, config: &Value) -> Result<Vec<u32>, (bool, String)> {
    let places = [(true, generation), (false, Some(config)), (false, config.get("text_config"))];
    for (in_generation, place) in places {
        let Some(value) = place.and_then(|p| p.get("eos_token_id")).filter(|v| !v.is_null()) else { continue };
        return ids(value).ok_or_else(|| (in_generation, value.to_string().chars().take(80).collect()));
    }
    Ok(Vec::new())
}

fn ids(value: &Value) -> Option<Vec<u32>> {
    let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let mut ids = match value {
        Value::Array(list) => list.iter().map(id).collect::<Option<Vec<u32>>>()?,
        one => vec![id(one)?],
    };
    ids.sort_unstable();
    ids.dedup();
    Some(ids)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_go_through_objects_and_lists() {
        let v = json!({"a": {"b": [10, {"c": null}]}});
        assert_eq!(at(&v, "a.b.0"), Some(&json!(10)));
        assert_eq!(at(&v, "a.b.1.c"), Some(&Value::Null));
        for none in ["a.x", "a.b.2", "a.b.-1", "a.b.0.c", "", "a..b"] {
            assert_eq!(at(&v, none), None, "{none}");
        }
    }

    #[test]
    fn the_generation_config_comes_first_and_null_is_absent() {
        let g = json!({"eos_token_id": [7, 3, 7]});
        let c = json!({"eos_token_id": 5});
        assert_eq!(stop_ids(Some(&g), &c), Ok(vec![3, 7]));
        assert_eq!(stop_ids(Some(&json!({"eos_token_id": null})), &c), Ok(vec![5]));
        assert_eq!(stop_ids(None, &json!({"eos_token_id": null, "text_config": {"eos_token_id": 9}})), Ok(vec![9]));
        assert_eq!(stop_ids(Some(&json!({})), &json!({"eos_token_id": null})), Ok(vec![]));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for bad in [json!("2"), json!(-1), json!(1.5), json!(true), json!([1, null]), json!(4_294_967_296_u64)] {
            assert_eq!(stop_ids(Some(&json!({"eos_token_id": bad})), &json!({})), Err((true, bad.to_string())));
        }
        assert_eq!(stop_ids(None, &json!({"eos_token_id": {}})), Err((false, "{}".into())));
    }
}
