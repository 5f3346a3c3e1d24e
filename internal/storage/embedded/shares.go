package embedded

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/keelson-dev/keelson/internal/storage"
)

// When the kept history needs more space than it may use, the shares with the most history lose versions first. So
// one client cannot displace the history that others need. The space is divided between the shares, which are
// namespaces (and resources without namespaces), and the space of a share is divided between its keys. A share
// that needs less than its part leaves the rest to the others. If a key has more history than its part, the oldest
// is given up first. Deletions, which say who has deleted what, and the version before them are given up last.
//
// Example: there is space for 90, and namespace a keeps 20, b 30 and c 200. Then a and b keep everything and c
// keeps 40. If c has the keys x with 190 and y with 10, y keeps everything and x keeps 30.
//
// As in every other pass, an operation is removed together with the versions that it names. A loss is recorded for
// the key: it is the lowest revision at which a key or a folder of keys can still be read.

// loss is a revision below which a key or a folder cannot be read, because its history was given up before its
// time.
type loss struct {
	// Folder has the keys that begin with it and have no further slash; "" has all keys. Key is one of these keys,
	// or "" for all of them.
	Folder, Key string
	mark
}

// maxLosses is the largest number of losses. When there are more, the losses of keys are combined into losses of
// their folders, and finally into one loss of all keys.
const maxLosses = 512

// folderOf returns the part of a key up to its last slash.
func folderOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }

// shareOf returns the share of a key: its namespace. If it has none, the share is the folder of its resource,
// which begins with a slash. So a namespace with the name of a resource is another share.
//
// Keys of objects are (/registry)/RESOURCE(/NAMESPACE)/NAME, or (/registry)/GROUP/RESOURCE(/NAMESPACE)/NAME with a dot in GROUP, as every group
// of custom resources has one. Two built-in resources have two elements, /registry/services/specs and endpoints, and a namespace.
func shareOf(key string) string {
	folder := strings.TrimSuffix(folderOf(key), "/")
	path := strings.TrimPrefix(strings.TrimPrefix(folder, "/registry"), "/")
	group, _, _ := strings.Cut(path, "/")
	elements := 1 // number of elements of the resource
	if strings.Contains(group, ".") {
		elements = 2
	}
	if strings.Count(path, "/") < elements {
		return folder + "/"
	}
	return lastElement(folder)
}

// lastElement returns what is after the last slash.
func lastElement(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// affectsScope reports whether a key of the scope may be affected by the loss.
func (l *loss) affectsScope(scope storage.Scope) bool {
	switch {
	case l.Folder == "":
		return true
	case l.Key != "":
		return scope.Has(l.Key)
	case scope.Namespace != "" && lastElement(strings.TrimSuffix(l.Folder, "/")) != scope.Namespace: // as Scope.Has
		return false
	}
	return strings.HasPrefix(l.Folder, scope.Prefix) || strings.HasPrefix(scope.Prefix, l.Folder)
}

// affectsKey reports whether the loss is about a key.
func (l *loss) affectsKey(key string) bool {
	return l.Folder == "" || l.Key == key || l.Key == "" && l.Folder == folderOf(key)
}

// lose records that a key cannot be read below a revision.
func (k *kept) lose(key string, at mark) {
	folder := folderOf(key)
	for i := range k.Losses {
		l := &k.Losses[i]
		if l.Key == key || l.Key == "" && (l.Folder == folder || l.Folder == "") {
			l.mark = l.later(at)
			return
		}
	}
	k.Losses = append(k.Losses, loss{folder, key, at})
	if len(k.Losses) <= maxLosses {
		return
	}
	// The losses of the folder with the most losses are combined into one. If each folder has only one, all losses
	// are combined.
	counts := map[string]int{}
	for i := range k.Losses {
		counts[k.Losses[i].Folder]++
	}
	most := ""
	for _, f := range slices.Sorted(maps.Keys(counts)) {
		if counts[f] > max(counts[most], 1) {
			most = f
		}
	}
	joined, others := loss{Folder: most}, k.Losses[:0]
	for _, l := range k.Losses {
		if most == "" || l.Folder == most {
			joined.mark = joined.later(l.mark)
		} else {
			others = append(others, l)
		}
	}
	k.Losses = append(others, joined)
}

// forgetLosses removes the losses that have no effect because all floors are higher.
func (k *kept) forgetLosses(compacted int64) {
	k.Losses = slices.DeleteFunc(k.Losses, func(l loss) bool {
		for i := range k.Rules {
			if k.floor(i, compacted).Revision < l.Revision {
				return false
			}
		}
		return true
	})
}

// level returns the largest size l such that the sum of min(l, n) over all sizes n is at most room.
func level[K comparable](sizes map[K]int64, room int64) int64 {
	list := slices.Sorted(maps.Values(sizes))
	for i, n := range list {
		left := int64(len(list) - i)
		if n*left > room {
			return max(room, 0) / left
		}
		room -= n
	}
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1]
}

// maxCounted is the largest number of keys that are counted one by one. If there are more, the remaining keys of a
// share are counted as one key.
const maxCounted = 50_000

// victims are the keys that lose history, each with the number of bytes that it loses.
type victims struct {
	excess    map[string]int64 // bytes to give up, by key
	rest      map[string]int64 // bytes to give up, by share, for keys that were not counted
	left      int64            // sum of excess and rest
	deletions bool             // deletions are given up too
	at        mark             // the last record that was examined
	given     map[string]int64 // bytes that were given up, by share
}

// gives reports whether an operation of a record is given up. If so, it subtracts its size from the bytes to give
// up.
func (v *victims) gives(key []byte, op logOp, size int64) bool {
	if op.deleted && !v.deletions {
		return false
	}
	share, from := shareOf(string(key)), v.excess
	name := string(key)
	if from[name] <= 0 {
		if name, from = share, v.rest; from[name] <= 0 {
			return false
		}
	}
	v.left -= min(size, from[name])
	from[name] -= size
	v.given[share] += size
	return true
}

// sharesOf computes which keys lose how many bytes, so that at most room bytes are kept of the records up to the
// revision through.
func (c *compactor) sharesOf(ctx context.Context, room, through int64) (*victims, error) {
	byShare := map[string]int64{}
	if err := c.eachKept(ctx, through, func(key []byte, size int64) { byShare[shareOf(string(key))] += size }); err != nil {
		return nil, err
	}
	most := level(byShare, room)
	v := &victims{excess: map[string]int64{}, rest: map[string]int64{}, given: map[string]int64{}}
	byKey, counted := map[string]map[string]int64{}, 0
	err := c.eachKept(ctx, through, func(key []byte, size int64) {
		share := shareOf(string(key))
		if byShare[share] <= most {
			return
		}
		keys := byKey[share]
		if keys == nil {
			keys = map[string]int64{}
			byKey[share] = keys
		}
		if _, known := keys[string(key)]; !known {
			if counted >= maxCounted {
				keys[""] += size
				return
			}
			counted++
		}
		keys[string(key)] += size
	})
	for share, keys := range byKey {
		part := level(keys, most)
		for key, size := range keys {
			switch {
			case size <= part:
				continue
			case key == "":
				v.rest[share] = size - part
			default:
				v.excess[key] = size - part
			}
			v.left += size - part
		}
	}
	return v, err
}

// eachKept calls yield for each operation in the log up to the revision through, with the number of bytes that it
// keeps.
func (c *compactor) eachKept(ctx context.Context, through int64, yield func(key []byte, size int64)) error {
	it, err := c.db.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: logKey(1), UpperBound: logKey(through + 1)})
	if err != nil {
		return err
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		w, _, err := cutWritten(value)
		if err != nil {
			return err
		}
		if err := decodeLog(value, func(key []byte, op logOp) error {
			yield(key, op.keptBytes(len(key), len(w.by)))
			return nil
		}); err != nil {
			return err
		}
	}
	return it.Error()
}

// giveUp reduces the kept history to most bytes. It first gives up history by shares, at first without deletions
// and then with them. Because it must examine all kept history, it frees an additional eighth of most, so that it
// is not called again soon. If this is not enough, it gives up the oldest history. The caller holds mu.
func (c *compactor) giveUp(ctx context.Context, most int64) error {
	k := &c.kept
	if most < 0 || k.Bytes <= most {
		return nil
	}
	k.forgetLosses(c.compacted.Load())
	for _, deletions := range []bool{false, true} {
		room := most - most/8
		through := k.Passed[0].later(k.Cut).Revision
		v, err := c.sharesOf(ctx, room, through)
		if err != nil {
			return err
		}
		v.deletions = deletions
		err = c.run(ctx, pass{victims: v, through: through})
		c.noteGivenUp(v.given)
		if err != nil || k.Bytes <= most {
			return err
		}
	}
	return c.run(ctx, pass{cut: true, most: most, through: k.Passed[0].later(k.Cut).Revision})
}

// maxNamedShares is the largest number of shares that the metric of given-up history names. The others are counted
// as otherShares.
const (
	maxNamedShares = 100
	otherShares    = "others"
)

// noteGivenUp counts and logs the history that was given up by shares. The caller holds mu.
func (c *compactor) noteGivenUp(given map[string]int64) {
	if len(given) == 0 {
		return
	}
	byBytes := slices.SortedFunc(maps.Keys(given), func(a, b string) int {
		return cmp.Or(cmp.Compare(given[b], given[a]), cmp.Compare(a, b))
	})
	all := maps.Clone(c.givenUp)
	if all == nil {
		all = map[string]int64{}
	}
	sum := int64(0)
	for _, share := range byBytes {
		name := share
		if _, named := all[name]; !named && len(all) >= maxNamedShares {
			name = otherShares
		}
		all[name] += given[share]
		sum += given[share]
	}
	c.givenUp = all
	const named = 5
	var most []string
	for _, share := range byBytes[:min(len(byBytes), named)] {
		most = append(most, fmt.Sprintf("%s: %d", share, given[share]))
	}
	c.db.opts.Logger.Warn("history was given up before its time, because too much is kept: that of those who have written most",
		"dir", c.db.opts.Dir, "bytes", sum, "namespaces", len(byBytes), "most", strings.Join(most, ", "))
	c.publishFloors()
}
