//! Watching named values while a function is evaluated.

use crate::tensor::Tensor;

/// Is told the named values of a run in the order they are computed.
///
/// A value's full path is its node path with the index of every enclosing loop inserted after that loop's own path
/// (`Op::loc.path`): `layers.mixed.qr` inside the loop `layers` is `layers.3.mixed.qr` in iteration 3. A value with several
/// names is told once under each. A name outside a loop's path gets no index of that loop and is told in every iteration.
/// States are not told.
pub trait Observer {
    /// True if the value with this full path is wanted.
    fn wants(&self, path: &str) -> bool;
    /// Takes a wanted value.
    fn value(&mut self, full_path: &str, t: &Tensor);
}

/// Wants nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn wants(&self, _: &str) -> bool {
        false
    }

    fn value(&mut self, _: &str, _: &Tensor) {}
}

/// `name` with the indices of the running loops, given outermost first by path and iteration.
pub(super) fn full_path(name: &str, loops: &[(std::sync::Arc<str>, usize)]) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut done = 0;
    for (path, iteration) in loops {
        let inside = name.strip_prefix(&**path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if inside && !path.is_empty() && path.len() >= done {
            out.push_str(&name[done..path.len()]);
            out.push_str(&format!(".{iteration}"));
            done = path.len();
        }
    }
    out.push_str(&name[done..]);
    out
}

#[cfg(test)]
mod tests {
    use super::full_path;

    #[test]
    fn indices_follow_the_loops() {
        let loops = [("layers".into(), 3), ("layers.walk".into(), 1)];
        assert_eq!(full_path("layers.mixed.qr", &loops), "layers.3.mixed.qr");
        assert_eq!(full_path("layers.walk.j", &loops), "layers.3.walk.1.j");
        assert_eq!(full_path("layers", &loops), "layers.3");
        assert_eq!(full_path("layersx.y", &loops), "layersx.y");
        assert_eq!(full_path("x", &[]), "x");
    }
}
