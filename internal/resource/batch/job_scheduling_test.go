package batch

import (
	"encoding/json"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/keelson-dev/keelson/internal/resource/field"
)

func scheduled(t *testing.T, text string) *batchv1.JobSpec {
	t.Helper()
	s := &batchv1.JobSpec{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestScheduling validates the scheduling of jobs, with the errors of kube-apiserver 1.37.2.
func TestScheduling(t *testing.T) {
	for _, c := range []struct {
		is, was string // the spec, and the one before an update
		off     bool   // the gate is off
		want    []string
	}{
		{is: `{"scheduling":{"schedulingPolicy":{"gang":{"minCount":1}},"disruptionMode":{"all":{}}}}`},
		{is: `{"scheduling":{"schedulingPolicy":{"gang":{"minCount":3}}},"parallelism":2}`,
			want: []string{"s.schedulingPolicy.gang.minCount: Invalid value: 3: must not be greater than parallelism (2)"}},
		{is: `{"scheduling":{"disruptionMode":{"all":{}}}}`, want: []string{
			"s.disruptionMode: Invalid value: \"\": the disruptionMode `all` is not supported with the Basic scheduling policy"}},
		{is: `{"scheduling":{"schedulingPolicy":{"basic":{},"gang":{"minCount":0}},"disruptionMode":{},` +
			`"schedulingConstraints":{"topology":[{"key":""}]},"resourceClaims":[{"name":"a"},{"name":"a","resourceClaimName":"x"}]}}`,
			want: []string{
				"s.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
				"s.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1",
				"s.schedulingConstraints.topology[0].key: Required value",
				"s.disruptionMode: Invalid value: \"\": must specify one of: `single`, `all`",
				`s.resourceClaims[1]: Duplicate value: {"name":"a","resourceClaimName":"x"}`,
				"s.resourceClaims[0]: Invalid value: \"\": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
			}},
		{is: `{"scheduling":{}}`, was: `{}`, want: []string{"s: Invalid value: null: field cannot be set once created"}},
		{is: `{}`, was: `{"scheduling":{}}`, want: []string{"s: Invalid value: null: field cannot be cleared once set"}},
		{is: `{"scheduling":{"disruptionMode":{"single":{}}}}`, was: `{"scheduling":{}}`, off: true,
			want: []string{"s: Forbidden"}},
		{is: `{"scheduling":{"schedulingPolicy":{"gang":{"minCount":1}}}}`,
			was: `{"scheduling":{"schedulingPolicy":{"gang":{}}}}`},
		{is: `{"scheduling":{"schedulingPolicy":{"gang":{}},"disruptionMode":{"single":{}}}}`,
			was: `{"scheduling":{"schedulingPolicy":{"basic":{}}}}`, want: []string{
				"s.schedulingPolicy: Invalid value: null: the basic/gang policy variant is immutable after creation; only " +
					"schedulingPolicy.gang.minCount may be updated",
				"s.disruptionMode: Invalid value: null: field is immutable"}},
	} {
		path := field.NewPath("s")
		is := scheduled(t, c.is)
		errs := validateGang(is, path)
		var old *batchv1.JobSpec
		if c.was != "" {
			old = scheduled(t, c.was)
			errs = append(errs, validateGangUpdate(is.Scheduling, old.Scheduling, path)...)
		}
		errs = append(errs, validateScheduling(is, old, !c.off, path)...)
		var got []string
		for _, err := range errs {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s after %s: got %q, want %q", c.is, c.was, got, c.want)
		}
	}
}

// TestSchedulingGate drops the field if its gate is off, unless the object had it before.
func TestSchedulingGate(t *testing.T) {
	set, unset := scheduled(t, `{"scheduling":{}}`), &batchv1.JobSpec{}
	off, on := jobGates{}, jobGates{scheduling: true}
	for _, c := range []struct {
		drop func(*batchv1.JobSpec)
		kept bool
	}{
		{off.dropNew, false}, {on.dropNew, true},
		{func(s *batchv1.JobSpec) { off.drop(s, unset) }, false}, {func(s *batchv1.JobSpec) { off.drop(s, set) }, true},
		{func(s *batchv1.JobSpec) { on.drop(s, unset) }, true},
	} {
		s := set.DeepCopy()
		if c.drop(s); (s.Scheduling != nil) != c.kept {
			t.Errorf("kept: %v, want %v", s.Scheduling != nil, c.kept)
		}
	}
}
