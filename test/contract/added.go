package contract

import "slices"

// addedWarnings are the Warning headers that this server sends and kube-apiserver does not, word by word; README.md
// explains why. admission/plugin/unenforced sends them.
func addedWarnings() []string {
	return []string{
		`299 - "MutatingAdmissionPolicies are stored, but they are not evaluated yet: they refuse and change nothing"`,
		`299 - "MutatingAdmissionPolicyBindings are stored, but they are not evaluated yet: they refuse and change nothing"`,
	}
}

// withoutAdded returns the warnings without those in addedWarnings. If kube-apiserver sends one of them, too, it is
// not removed from either side.
func withoutAdded(want, got []string) []string {
	added := addedWarnings()
	return slices.DeleteFunc(slices.Clone(got), func(w string) bool {
		return slices.Contains(added, w) && !slices.Contains(want, w)
	})
}
