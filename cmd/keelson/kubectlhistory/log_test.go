package kubectlhistory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/api/history"
)

func TestLogTable(t *testing.T) {
	at := history.TimeOf(time.Date(2026, 11, 1, 12, 0, 0, int(5*time.Millisecond), time.UTC))
	var many []string
	for i := range 8 {
		many = append(many, fmt.Sprint(".f", i))
	}
	changes := []history.Change{
		{Type: history.Deleted, ResourceVersion: "9", Time: at, User: "system:gc", Verb: "delete", Reason: "the owner a is gone"},
		{Type: history.Updated, ResourceVersion: "8", Time: at, User: "jane", Impersonator: "admin", Verb: "patch", Subresource: "status",
			Changed: many, MoreChanged: 3},
		{Type: history.Updated, ResourceVersion: "7", User: "a\x1bb", Unreadable: "no key"},
	}
	var out strings.Builder
	if err := writeTable(&out, logHeader(changes), logRows(changes)); err != nil {
		t.Fatal(err)
	}
	const want = `TIME                       REVISION   TYPE      USER              REQUEST        CHANGED
2026-11-01T12:00:00.005Z   9          Deleted   system:gc         delete         the owner a is gone
2026-11-01T12:00:00.005Z   8          Updated   jane (by admin)   patch status   .f0,.f1,.f2,.f3,.f4,.f5 and 5 more
<unknown>                  7          Updated   a?b               <none>         no key
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	changes[0].UID = "another"
	if header := logHeader(changes); header[len(header)-1] != "UID" || logRows(changes)[0][len(header)-1] != "another" {
		t.Error("the UIDs are not shown")
	}
}
