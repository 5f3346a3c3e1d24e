package contract

import (
	"fmt"
	"slices"
	"strings"
)

// reasons are classes of missing behaviour, recognized by what a failed step shows. The first class that fits is used.
var reasons = []struct {
	name string
	fits func(r *StepResult) bool
}{
	{"aborted", func(r *StepResult) bool { return r.err != nil }},
	{"token", func(r *StepResult) bool { return strings.Contains(r.step.Do, "/token") }},
	{"reviews", func(r *StepResult) bool { return r.got.Status == 501 && strings.Contains(r.step.Do, "reviews") }},
	{"not served", func(r *StepResult) bool { return r.got.Status == 501 }},
	{"RBAC", func(r *StepResult) bool {
		return !r.code && (r.got.Status == 403 || r.step.Expect.Status == 403) && (r.step.As != "" || r.got.Status == 403)
	}},
	{"service IPs", func(r *StepResult) bool {
		return strings.Contains(r.step.Do, "/services") &&
			r.touches("clusterIP", "ipFamil", "nodePort", "internalTrafficPolicy")
	}},
	{"admission plug-in", func(r *StepResult) bool {
		return r.touches(
			".spec.priority", ".spec.serviceAccount", ".spec.tolerations", ".spec.taints", "kube-api-access", "volumeMounts",
			".finalizers", "storageClassName", "preemptionPolicy",
		) ||
			!r.code && r.step.Expect.Status == 403
	}},
	{"validation of a kind", func(r *StepResult) bool {
		return r.step.Expect.Status == 422 && (r.got.Status < 300 || r.got.Status == 422)
	}},
	{"managed fields", func(r *StepResult) bool { return r.touches("managedFields") }},
	{"discovery", func(r *StepResult) bool { return r.step.expectsDiscovery() }},
	{"warnings", func(r *StepResult) bool { return len(r.diffs) == 1 && r.diffs[0].path == "warning" }},
	{"wording", func(r *StepResult) bool { return r.code && r.onlyMessages() }},
	{"status code", func(r *StepResult) bool { return !r.code }},
}

// reason returns the class of a failed step.
func (r *StepResult) reason() string {
	for _, class := range reasons {
		if class.fits(r) {
			if class.name == "status code" {
				return fmt.Sprintf("status code %d for %d", r.got.Status, r.step.Expect.Status)
			}
			return class.name
		}
	}
	return "other: " + r.diffs[0].path
}

// touches reports whether a difference is at or in one of parts.
func (r *StepResult) touches(parts ...string) bool {
	for _, d := range r.diffs {
		for _, p := range parts {
			if strings.Contains(d.path, p) {
				return true
			}
		}
	}
	return false
}

func (r *StepResult) onlyMessages() bool {
	for _, d := range r.diffs {
		if d.path != ".message" && !strings.HasSuffix(d.path, "].message") && !strings.HasPrefix(d.path, ".details") {
			return false
		}
	}
	return true
}

func (s *Step) expectsDiscovery() bool {
	_, path, _ := strings.Cut(s.Do, " ")
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi", "version", "metrics":
		return true
	}
	return false
}

// reasonsOf returns the classes of all failed steps of a scenario, each once.
func reasonsOf(results []StepResult) []string {
	var out []string
	for i := range results {
		if r := &results[i]; !r.passed() {
			if why := r.reason(); !slices.Contains(out, why) {
				out = append(out, why)
			}
		}
	}
	return out
}
