package controllertest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

// finishJob creates a Job and says that it has finished at a time.
func finishJob(s *servertest.Server, name, spec string, at time.Time) {
	const all = "/apis/batch/v1/namespaces/default/jobs"
	s.Create(all, `{"metadata":{"name":"`+name+`"},"spec":{`+spec+`"template":{"spec":{"restartPolicy":"Never",
		"containers":[{"name":"c","image":"i"}]}}}}`)
	text := at.UTC().Format(time.RFC3339)
	s.Patch(all+"/"+name+"/status", `{"status":{"startTime":"`+text+`","completionTime":"`+text+`","succeeded":1,
		"uncountedTerminatedPods":{},"conditions":[
		{"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":"`+text+`"},
		{"type":"Complete","status":"True","lastTransitionTime":"`+text+`"}]}}`)
}

// TestFinishedJobsAreDeleted checks that a Job whose time to live has passed is deleted with its pods, and that others
// stay.
func TestFinishedJobsAreDeleted(t *testing.T) {
	s := servertest.Start(t, servertest.Default("ttl-after-finished", "garbagecollector"))
	const all = "/apis/batch/v1/namespaces/default/jobs/"
	ago := time.Now().Add(-time.Hour)
	finishJob(s, "kept", "", ago)
	finishJob(s, "later", `"ttlSecondsAfterFinished":7200,`, ago)
	finishJob(s, "soon", `"ttlSecondsAfterFinished":3601,`, ago)
	finishJob(s, "now", `"ttlSecondsAfterFinished":0,`, ago)
	s.Gone(all + "now")
	s.Gone(all + "soon")
	for _, name := range []string{"kept", "later"} {
		if got := s.Send("GET", all+name, ""); got.Status != http.StatusOK {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	// If the time is changed later, the new time counts.
	s.Patch(all+"later", `{"spec":{"ttlSecondsAfterFinished":1}}`)
	s.Gone(all + "later")
}

// TestFinishedJobKeepsFinalizers checks that the Job is deleted in the foreground, as by kube-controller-manager: the
// Job waits for the garbage collector.
func TestFinishedJobKeepsFinalizers(t *testing.T) {
	s := servertest.Start(t, servertest.Default("ttl-after-finished"))
	finishJob(s, "now", `"ttlSecondsAfterFinished":0,`, time.Now())
	wait.Seen(t, "the Job to be deleted in the foreground", func() (bool, string) {
		body := s.Get("/apis/batch/v1/namespaces/default/jobs/now")
		return strings.Contains(body, `"deletionTimestamp"`) && strings.Contains(body, `"foregroundDeletion"`), body
	})
}
