package patch_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/internal/api/write/patch"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// nestedObject is an object in an object, and so on, around a value.
func nestedObject(depth int, value string) []byte {
	return []byte(strings.Repeat(`{"a":`, depth) + value + strings.Repeat("}", depth))
}

// TestDeepPatches applies patches that are deep. Some are refused; the others take memory in
// proportion to their size and not to its product with their depth.
func TestDeepPatches(t *testing.T) {
	const most = 200 << 20
	large := `"` + strings.Repeat("x", 1<<20) + `"`
	for _, c := range []struct {
		depth int
		ok    bool
	}{{20, true}, {900, true}, {9000, false}} {
		var err error
		var merged []byte
		taken := allocated(func() {
			merged, _, err = patch.Merge(nestedObject(c.depth, large), nestedObject(c.depth, `{"b":1.0,"c":null}`), patch.Warn)
		})
		if (err == nil) != c.ok || taken > most {
			t.Errorf("merge patch of depth %d: %.200v, %d MiB", c.depth, err, taken>>20)
		}
		if want := nestedObject(c.depth, `{"b":1.0}`); c.ok && !bytes.Equal(merged, want) {
			t.Errorf("merge patch of depth %d: %.200s", c.depth, merged)
		}
		taken = allocated(func() {
			op := fmt.Appendf(nil, `[{"op":"add","path":"%s/b","value":1}]`, strings.Repeat("/a", c.depth))
			_, _, err = patch.JSON(nestedObject(c.depth, `{"c":`+large+"}"), op, patch.Warn)
		})
		if (err == nil) != (c.depth == 20) || taken > most {
			t.Errorf("JSON patch of depth %d: %.200v, %d MiB", c.depth, err, taken>>20)
		}
		_, err = patch.Strategic(&corev1.ConfigMap{}, &corev1.ConfigMap{}, nestedObject(c.depth, "1"), patch.Ignore)
		if kerrors.IsBadRequest(err) == c.ok {
			t.Errorf("strategic merge patch of depth %d: %.200v", c.depth, err)
		}
		if _, err = patch.Apply(nestedObject(c.depth, "1"), patch.Ignore); (err == nil) != c.ok {
			t.Errorf("applied configuration of depth %d: %.200v", c.depth, err)
		}
	}
}

// TestHostileStrategicPatches checks that malicious patches are refused without a panic.
func TestHostileStrategicPatches(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	for _, body := range []string{
		`{"spec":{"containers":[{"name":["a"]}]}}`,
		`{"spec":{"containers":[{"name":{"a":"b"}}]}}`,
		`{"spec":{"containers":[{"name":["a"]},{"name":["a"]}]}}`,
		`{"spec":{"containers":[{"name":"a","env":[{"name":["x"]}]}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":["a"]}],"containers":[{"name":"a"}]}}`,
		`{"spec":{"$setElementOrder/containers":[["a"]],"containers":[{"name":"a"}]}}`,
		`{"metadata":{"finalizers":[["a"]]}}`,
		`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1e-99999\u00399999"}}}]}}`,
		`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"\u0031e-99999999999"}}}]}}`,
	} {
		for _, original := range []*corev1.Pod{
			pod, {}, {Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Env: []corev1.EnvVar{{Name: "x"}}}}}},
		} {
			_, err := patch.Strategic(original, &corev1.Pod{}, []byte(body), patch.Warn)
			if !kerrors.IsBadRequest(err) && !kerrors.IsInvalid(err) && kerrors.ReasonForError(err) != "" || err == nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}

// TestOrderErrors checks that an error about the order of a list is answered 500 with the library's text, as in
// kube-apiserver.
func TestOrderErrors(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a"}}}}
	for body, want := range map[string]string{
		`{"spec":{"$setElementOrder/containers":["a"],"containers":[{"name":"a","image":"x"}]}}`: "expected a " +
			"map[string]interface {}, but received a string",
		`{"spec":{"$setElementOrder/initContainers":[],"initContainers":[]}}`: "no elements in any of the given slices",
	} {
		_, err := patch.Strategic(pod, &corev1.Pod{}, []byte(body), patch.Warn)
		if err == nil || !strings.HasPrefix(err.Error(), want) || kerrors.ReasonForError(err) != "" {
			t.Errorf("%s: %v (%s), want %s", body, err, kerrors.ReasonForError(err), want)
		}
	}
}

// TestApplyYAMLAliases applies a small YAML document whose aliases expand to a large one.
func TestApplyYAMLAliases(t *testing.T) {
	doc := "a: &a " + strings.Repeat("x", 100<<10) + "\nb: [" + strings.TrimSuffix(
		strings.Repeat("*a,", 20000), ",",
	) + "]\n"
	const most = 64 << 20
	var err error
	if taken := allocated(func() { _, err = patch.Apply([]byte(doc), patch.Strict) }); !kerrors.IsBadRequest(err) ||
		taken > most {
		t.Errorf("%v, %d MiB", err, taken>>20)
	}
}
