//! Which phase of ours a recorded phase is: scripts name them in their own words.
//!
//! | rule | what it says |
//! |---|---|
//! | `same` | the same name |
//! | `one` | a recorded `one X` is the only time that X happens: read as `step 0 X`, if ours has no later step |
//! | `moved` | a recorded name with `.cuda()`, with which PyTorch moves a model, is `model to device` |
//! | `more` | one name says more: both begin with the same two words, and all words of the shorter stand in the longer in their order (`step 0 backward`, `step 0 batch 32 backward`); no second phase may fit |
//!
//! The rules are tried one after the other, each on the phases that are left.

/// For each recorded phase, which of ours it is.
pub(super) fn partners(recorded: &[String], ours: &[String]) -> Vec<Option<usize>> {
    let steps = ours.iter().filter_map(|name| name.strip_prefix("step ")?.split(' ').next());
    let single = steps.clone().all(|step| step == "0") && steps.count() > 0;
    let read: Vec<String> = recorded
        .iter()
        .map(|name| match name.strip_prefix("one ").filter(|_| single) {
            Some(what) => format!("step 0 {what}"),
            None if name.contains(".cuda()") => "model to device".to_owned(),
            None => name.clone(),
        })
        .collect();
    let mut found: Vec<Option<usize>> =
        read.iter().map(|name| ours.iter().position(|our| our == name)).collect();
    let left: Vec<usize> = (0..ours.len()).filter(|i| !found.contains(&Some(*i))).collect();
    let open: Vec<usize> = (0..read.len()).filter(|i| found[*i].is_none()).collect();
    let fits = |i: usize, our: usize| says_more(&read[i], &ours[our]);
    for i in &open {
        let mut candidates = left.iter().filter(|our| fits(*i, **our));
        if let (Some(our), None) = (candidates.next(), candidates.next())
            && open.iter().filter(|other| fits(**other, *our)).count() == 1
        {
            found[*i] = Some(*our);
        }
    }
    found
}

/// Rule `more`, in either direction.
fn says_more(a: &str, b: &str) -> bool {
    let [a, b] = [a, b].map(|name| name.split(' ').collect::<Vec<&str>>());
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut rest = long.iter();
    short.len() >= 2 && short[..2] == long[..2] && short.iter().all(|word| rest.any(|w| w == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(recorded: &[&str], ours: &[&str]) -> Vec<Option<usize>> {
        let owned =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        partners(&owned(recorded), &owned(ours))
    }

    #[test]
    fn names_that_say_more_are_the_same_phase() {
        let recorded = ["load", "step 1 backward", "step 10 backward", "step 1 batch 2 forward"];
        let ours =
            ["step 1 batch 2 forward", "step 10 batch 1 backward", "step 1 batch 2 backward"];
        assert_eq!(found(&recorded, &ours), [None, Some(2), Some(1), Some(0)]);
        assert_eq!(found(&["step 0 seq 7 forward"], &["step 0 forward"]), [Some(0)]);
    }

    #[test]
    fn a_name_that_fits_two_is_neither() {
        let two = ["step 0 micro 0 backward", "step 0 micro 1 backward"];
        assert_eq!(found(&["step 0 backward"], &two), [None]);
        assert_eq!(found(&two, &["step 0 backward"]), [None, None]);
        assert_eq!(found(&["backward"], &["step 0 backward"]), [None]);
    }

    #[test]
    fn a_model_that_is_moved_comes_to_the_device() {
        let ours = ["model to device", "step 0 forward"];
        assert_eq!(found(&["load on the host, then .cuda()"], &ours), [Some(0)]);
    }

    #[test]
    fn one_is_the_only_step() {
        assert_eq!(found(&["one forward"], &["load", "step 0 forward"]), [Some(1)]);
        assert_eq!(found(&["one forward"], &["step 0 forward", "step 1 forward"]), [None]);
        assert_eq!(found(&["one forward"], &["load"]), [None]);
    }
}
