package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// collectorAttacks have the garbage collector work.
func collectorAttacks() []row {
	all := []right{{resources: "configmaps", verbs: "*"}}
	return []row{{
		name: "many owners of the same objects go", slow: true, row: "41", rights: all, setup: ownersOfAll, run: deleteOwners,
		limits: limits{cpu: 8 * time.Second, peak: 200 << 20},
	}, {
		name: "circles of owners go in the foreground", slow: true, row: "41", rights: all, setup: circlesOfOwners, run: deleteCircles,
		limits: limits{cpu: time.Duration(size(16, 240)) * time.Second, peak: 200 << 20, kept: 24 << 20},
	}}
}

// circle is a group of objects, each of which names owners of the group: the next ones, in a ring.
type circle struct{ size, owners int }

func circles(a *attack) []circle {
	return []circle{{size: size(1_000, 50_000), owners: 1}, {size: 40, owners: 39}, {size: size(200, 2_000), owners: 20}}
}

func circlesOfOwners(a *attack) {
	for c, circle := range circles(a) {
		uids := make([]string, circle.size)
		inParallel(circle.size, func(i int) {
			body := fmt.Sprintf(`{"metadata":{"name":"circle-%d-%d"}}`, c, i)
			answer := a.user.send(http.MethodPost, a.path("configmaps"), jsonType, []byte(body)).want(a, http.StatusCreated)
			uids[i] = uidOf(a, answer)
		})
		inParallel(circle.size, func(i int) {
			var references []string
			for next := range circle.owners {
				owner := (i + next + 1) % circle.size
				references = append(references, fmt.Sprintf(
					`{"apiVersion":"v1","kind":"ConfigMap","name":"circle-%d-%d","uid":%q,"blockOwnerDeletion":true}`,
					c, owner, uids[owner]))
			}
			body := `{"metadata":{"ownerReferences":[` + strings.Join(references, ",") + `]}}`
			path := fmt.Sprintf("%s/circle-%d-%d", a.path("configmaps"), c, i)
			a.user.send(http.MethodPatch, path, mergeType, []byte(body)).want(a, http.StatusOK)
		})
	}
}

// inParallel calls do with each number below n, eight at a time.
func inParallel(n int, do func(int)) {
	var clients sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	clients.Wait()
}

// deleteCircles deletes one object of each circle in the foreground. In a circle of one owner each, that takes all others
// along. In the others the rest stays, without references to it. (If all objects of a circle are deleted in the
// foreground, they wait for each other for ever, as with kube-controller-manager.)
func deleteCircles(a *attack) {
	kept := 1 // kube-root-ca.crt
	for c, circle := range circles(a) {
		if circle.owners > 1 {
			kept += circle.size - 1
		}
		a.user.send(http.MethodDelete, fmt.Sprintf("%s/circle-%d-0", a.path("configmaps"), c), jsonType,
			[]byte(`{"propagationPolicy":"Foreground"}`)).want(a, http.StatusOK)
	}
	// An object of a ring of 50,000 goes after all before it: one after the other.
	limit := time.Duration(size(1, 10)) * patience
	wait.SeenWithin(a, limit, "the circles to be gone", func() (bool, string) {
		var list struct {
			Items    []any
			Metadata struct{ RemainingItemCount int }
		}
		answer := a.user.get(a.path("configmaps")+"?limit=1").want(a, http.StatusOK)
		if err := json.Unmarshal(answer.body, &list); err != nil {
			return false, err.Error()
		}
		n := len(list.Items) + list.Metadata.RemainingItemCount
		return n == kept, fmt.Sprintf("%d objects are left, want %d", n, kept)
	})
}

func uidOf(a *attack, answer *answer) string {
	a.Helper()
	var object struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(answer.body, &object); err != nil {
		a.Fatal(err)
	}
	return object.Metadata.UID
}

// ownerCount is how many owners there are, and ownedCount how many objects name all of them.
const ownerCount, ownedCount = 1_500, 20

// ownersOfAll creates owners, and objects that name all of them.
func ownersOfAll(a *attack) {
	references := make([]string, ownerCount)
	for i := range ownerCount {
		body := fmt.Sprintf(`{"metadata":{"name":"owner-%d"}}`, i)
		answer := a.user.send(http.MethodPost, a.path("configmaps"), jsonType, []byte(body)).want(a, http.StatusCreated)
		references[i] = fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","name":"owner-%d","uid":%q}`, i, uidOf(a, answer))
	}
	for i := range ownedCount {
		body := fmt.Sprintf(`{"metadata":{"name":"owned-%d","ownerReferences":[%s]}}`, i, strings.Join(references, ","))
		a.user.send(http.MethodPost, a.path("configmaps"), jsonType, []byte(body)).want(a, http.StatusCreated)
	}
}

// deleteOwners deletes all owners but one, eight at a time, and waits until the objects name that one alone.
func deleteOwners(a *attack) {
	inParallel(ownerCount-1, func(i int) {
		a.user.send(http.MethodDelete, fmt.Sprintf("%s/owner-%d", a.path("configmaps"), i), "", nil).want(a, http.StatusOK)
	})
	for i := range ownedCount {
		wait.NoError(a, "references to owners that are gone to be removed", func() error {
			var object struct {
				Metadata struct{ OwnerReferences []any }
			}
			answer := a.user.get(fmt.Sprintf("%s/owned-%d", a.path("configmaps"), i))
			if err := json.Unmarshal(answer.body, &object); err != nil {
				return err
			}
			if n := len(object.Metadata.OwnerReferences); n != 1 {
				return fmt.Errorf("%d are left", n)
			}
			return nil
		})
	}
}
