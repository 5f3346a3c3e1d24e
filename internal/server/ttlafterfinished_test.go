package server

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// finish creates a Job and says that it has finished at a time.
func (k *controlled) finish(name, spec string, at time.Time) {
	k.t.Helper()
	const all = "/apis/batch/v1/namespaces/default/jobs"
	k.send("POST", all, `{"metadata":{"name":"`+name+`"},"spec":{`+spec+`"template":{"spec":{"restartPolicy":"Never",
		"containers":[{"name":"c","image":"i"}]}}}}`)
	text := at.UTC().Format(time.RFC3339)
	k.send("PATCH", all+"/"+name+"/status", `{"status":{"startTime":"`+text+`","completionTime":"`+text+`","succeeded":1,
		"uncountedTerminatedPods":{},"conditions":[
		{"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":"`+text+`"},
		{"type":"Complete","status":"True","lastTransitionTime":"`+text+`"}]}}`,
		"Content-Type", "application/merge-patch+json")
}

// TestFinishedJobsAreDeleted checks that a Job whose time to live has passed is deleted with its pods, and that others
// stay.
func TestFinishedJobsAreDeleted(t *testing.T) {
	k := startControlled(t, "ttl-after-finished", "garbagecollector")
	const all = "/apis/batch/v1/namespaces/default/jobs/"
	ago := time.Now().Add(-time.Hour)
	k.finish("kept", "", ago)
	k.finish("later", `"ttlSecondsAfterFinished":7200,`, ago)
	k.finish("soon", `"ttlSecondsAfterFinished":3601,`, ago)
	k.finish("now", `"ttlSecondsAfterFinished":0,`, ago)
	k.gone(all + "now")
	k.gone(all + "soon")
	for _, name := range []string{"kept", "later"} {
		if got := sendJSON(t, k.c, http.MethodGet, k.s.URL()+all+name, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	// A time that is changed later counts.
	k.send("PATCH", all+"later", `{"spec":{"ttlSecondsAfterFinished":1}}`, "Content-Type", "application/merge-patch+json")
	k.gone(all + "later")
}

// TestFinishedJobKeepsFinalizers checks that the Job is deleted in the foreground, as by kube-controller-manager: the
// Job waits for the garbage collector.
func TestFinishedJobKeepsFinalizers(t *testing.T) {
	k := startControlled(t, "ttl-after-finished")
	k.finish("now", `"ttlSecondsAfterFinished":0,`, time.Now())
	k.eventually("the Job to be deleted in the foreground", func() (bool, string) {
		body := k.send("GET", "/apis/batch/v1/namespaces/default/jobs/now", "")
		return strings.Contains(body, `"deletionTimestamp"`) && strings.Contains(body, `"foregroundDeletion"`), body
	})
}
