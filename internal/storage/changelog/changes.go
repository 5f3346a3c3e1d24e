package changelog

import "github.com/keelson-dev/keelson/internal/storage"

// Transactions returns the transactions of changes that a store has returned (storage.History.Changes), all those of a revision
// together. Values are shared.
func Transactions(changes []storage.Change) (list []Transaction) {
	for i := range changes {
		c := &changes[i]
		if n := len(list); n == 0 || list[n-1].Revision != c.Entry.ModRevision {
			list = append(list, Transaction{Revision: c.Entry.ModRevision, Time: c.Time, By: c.By})
		}
		t := &list[len(list)-1]
		t.Operations = append(t.Operations, Operation{Key: c.Entry.Key, Deleted: c.Deleted, Value: c.Entry.Value, Deadline: c.Deadline})
	}
	return list
}
