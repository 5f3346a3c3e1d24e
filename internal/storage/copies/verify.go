package copies

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/snapshot"
)

// Problem is something that is wrong with a copy.
type Problem struct {
	Where string `json:"where"` // the name of an object, or the revisions that are missing
	Text  string `json:"text"`
}

func (p Problem) String() string { return p.Where + ": " + p.Text }

// Verified counts what Verify has read.
type Verified struct {
	Lines        int   `json:"lines"`
	Images       int   `json:"images"`
	Segments     int   `json:"segments"`
	Transactions int64 `json:"transactions"`
	// Keys is the largest number of keys that a state had.
	Keys int64 `json:"keys"`
	// Contained is the number of segments of which another one has all changes. A writer that was killed leaves them, and the next
	// one removes them.
	Contained int `json:"contained"`
}

// Verify reads all objects that the lines of history of a copy use, and reports what is wrong with them: damage, objects that are not
// what their names say, changes that are missing, and segments that have revisions in common and disagree. From the oldest image of each
// line it applies the changes in memory, and at the revision of each later image it compares the state with that image. So it also finds
// a merged segment that has lost a change, if there is an image after it.
//
// It needs no store. In memory it has the keys of one state, with about 100 bytes for each besides the key itself. A writer may write to
// the copy meanwhile: what it removes is not missed. Verify returns an error if it cannot list the copy (ErrEmpty if there is none), if
// the copy is encrypted and none of the identities decrypts it, or if ctx ends.
func Verify(ctx context.Context, b bucket.Bucket, identities []age.Identity, report func(Problem)) (Verified, error) {
	v := &verifier{bucket: b, identities: identities, seed: maphash.MakeSeed(), reported: map[Problem]bool{}, report: report}
	x, err := ReadIndex(ctx, b)
	if err != nil {
		return v.verified, err
	}
	if len(x.Epochs) == 0 {
		return v.verified, ErrEmpty
	}
	for _, l := range x.Lines() {
		v.verified.Lines++
		line := &lineVerifier{verifier: v, line: l, done: map[string]bool{}, bad: map[string]bool{}, changes: map[string][]change{}}
		if err := line.run(ctx); err != nil {
			return v.verified, err
		}
	}
	return v.verified, nil
}

// verifier reads the objects of a copy.
type verifier struct {
	bucket     bucket.Bucket
	identities []age.Identity
	seed       maphash.Seed
	report     func(Problem)
	reported   map[Problem]bool // lines may have objects in common, which are read for each
	verified   Verified
}

// problem reports a problem, once.
func (v *verifier) problem(where, format string, args ...any) {
	p := Problem{where, strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")}
	if !v.reported[p] {
		v.reported[p] = true
		v.report(p)
	}
}

// content returns what was written to an object.
func (v *verifier) content(in io.Reader, o bucket.Object) (io.Reader, error) {
	if !encrypted(o) {
		return in, nil
	}
	return opener(v.identities)(in)
}

// withoutKey reports whether an error says that there is no key for an object.
func withoutKey(err error) bool {
	var other *age.NoIdentityMatchError
	return errors.Is(err, backup.ErrEncrypted) || errors.As(err, &other)
}

// errStop ends the reading of a segment before its end.
var errStop = errors.New("the rest of the segment is not needed")

// eachTransaction calls each for the transactions of a segment, and verifies it. It ends early if each returns errStop.
func (v *verifier) eachTransaction(ctx context.Context, x Segment, each func(*changelog.Transaction) error) error {
	in, err := v.bucket.Get(ctx, x.Object.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	content, err := v.content(in, x.Object)
	if err != nil {
		return err
	}
	r, err := changelog.NewReader(content)
	if err != nil {
		return err
	}
	h := r.Header()
	if !strings.HasPrefix(x.Object.Name, fmt.Sprintf(epochFormat, h.Epoch)) || h.After != x.After {
		return fmt.Errorf("%w: it is of epoch %d and begins after revision %d", errOtherSegment, h.Epoch, h.After)
	}
	if err := r.Each(ctx, each); err != nil {
		return err
	}
	totals := r.Totals()
	if last := x.Last.UnixMilli(); totals.Through != x.Through || totals.Last != last && (totals.Last != 0 || !x.Last.IsZero()) {
		return fmt.Errorf("%w: it ends at revision %d, in millisecond %d", errOtherSegment, totals.Through, totals.Last)
	}
	return nil
}

// eachEntry calls each for the entries of an image, and verifies it.
func (v *verifier) eachEntry(ctx context.Context, image Image, each func(snapshot.Entry)) error {
	in, err := v.bucket.Get(ctx, image.Name)
	if err != nil {
		return err
	}
	defer in.Close()
	content, err := v.content(in, image.Object)
	if err != nil {
		return err
	}
	summary, err := backup.Verify(bufio.NewReaderSize(content, 1<<20), each)
	if err == nil && summary.Revision != image.Revision {
		err = fmt.Errorf("its content is the image of revision %d", summary.Revision)
	}
	return err
}

// sum returns a checksum of a value, which is of use in this process only.
func (v *verifier) sum(value []byte) uint64 { return maphash.Bytes(v.seed, value) }

// sumOf returns a checksum of a transaction.
func (v *verifier) sumOf(t *changelog.Transaction) uint64 {
	var h maphash.Hash
	h.SetSeed(v.seed)
	field := func(b []byte) {
		var size [binary.MaxVarintLen64]byte
		_, _ = h.Write(binary.AppendUvarint(size[:0], uint64(len(b)))) // it never fails
		_, _ = h.Write(b)
	}
	field(binary.AppendVarint(nil, t.Time.UnixMilli()))
	field(t.By)
	for _, op := range t.Operations {
		field([]byte(op.Key))
		field(op.Value)
		field(binary.AppendVarint(nil, op.Deadline))
		field([]byte(fmt.Sprint(op.Deleted)))
	}
	return h.Sum64()
}

// lineVerifier verifies a line of history. It goes from image to image, and applies the segments in between.
type lineVerifier struct {
	*verifier
	line *Line
	done map[string]bool // objects that need not be read any more
	bad  map[string]bool // segments that cannot be used
	gone int             // the number of objects that a writer has removed meanwhile

	// state is the state at the revision at. It is nil if that is not known. lastTime is when that revision was written, in Unix
	// milliseconds, 0 if that is not known.
	state    map[string]held
	at       int64
	lastTime int64
	round    uint32 // the number of images with which the state was compared
	// changes are those of segments that have revisions in common with others.
	changes map[string][]change
}

// held is what is remembered of a key.
type held struct {
	create, mod int64
	sum         uint64 // of the value
	round       uint32 // of the last image that has the key
}

// change is what a segment has of a revision.
type change struct {
	revision int64
	sum      uint64 // of the transaction
}

// run verifies the line.
func (v *lineVerifier) run(ctx context.Context) error {
	if len(v.line.Images) == 0 {
		v.problem(fmt.Sprintf("epoch %d", v.line.Epochs[0]), "it has no image, so nothing of it can be restored")
	}
	for {
		var err error
		if v.state == nil {
			image, ok := v.image(func(i Image) bool { return i.Revision > v.at })
			if !ok {
				break
			}
			err = v.begin(ctx, image)
		} else if image, ok := v.image(func(i Image) bool { return i.Revision == v.at }); ok {
			err = v.compare(ctx, image)
		} else {
			err = v.advance(ctx)
		}
		if err != nil {
			return err
		}
	}
	for _, x := range v.line.Segments {
		if !v.done[x.Object.Name] {
			if err := v.read(ctx, x, 0); err != nil {
				return err
			}
		}
	}
	v.compareSegments()
	return nil
}

// image returns the first image that was not read yet and of which is is true.
func (v *lineVerifier) image(is func(Image) bool) (Image, bool) {
	i := slices.IndexFunc(v.line.Images, func(i Image) bool { return !v.done[i.Name] && is(i) })
	if i < 0 {
		return Image{}, false
	}
	return v.line.Images[i], true
}

// begin makes an image the state. If the image cannot be read, there is no state.
func (v *lineVerifier) begin(ctx context.Context, image Image) error {
	v.done[image.Name], v.state = true, nil
	state := map[string]held{}
	err := v.eachEntry(ctx, image, func(e snapshot.Entry) {
		state[e.Key] = held{e.CreateRevision, e.ModRevision, v.sum(e.Value), 0}
	})
	if err != nil {
		return v.failed(ctx, image.Name, err)
	}
	v.verified.Images++
	v.verified.Keys = max(v.verified.Keys, int64(len(state)))
	v.state, v.at, v.lastTime, v.round = state, image.Revision, 0, 0
	return nil
}

// compare compares the state with an image of the same revision. If they differ, the image is the state from then on.
func (v *lineVerifier) compare(ctx context.Context, image Image) error {
	v.done[image.Name] = true
	v.round++
	found, wrong := 0, faults{}
	err := v.eachEntry(ctx, image, func(e snapshot.Entry) {
		h, ok := v.state[e.Key]
		switch {
		case !ok:
			wrong.add("it has %s (revision %d), which the changes before it do not make", e.Key, e.ModRevision)
			return
		case h.create != e.CreateRevision || h.mod != e.ModRevision:
			wrong.add("it has %s of revision %d, created at %d; the changes before it make revision %d, created at %d",
				e.Key, e.ModRevision, e.CreateRevision, h.mod, h.create)
		case h.sum != v.sum(e.Value):
			wrong.add("it has another value of %s (revision %d) than the changes before it make", e.Key, e.ModRevision)
		}
		found++
		h.round = v.round
		v.state[e.Key] = h
	})
	if err != nil {
		return v.failed(ctx, image.Name, err)
	}
	v.verified.Images++
	if found < len(v.state) {
		for _, key := range slices.Sorted(maps.Keys(v.state)) {
			if h := v.state[key]; h.round != v.round {
				wrong.add("it does not have %s (revision %d), which the changes before it make", key, h.mod)
			}
		}
	}
	if v.lastTime != 0 && v.lastTime != image.Time.UnixMilli() {
		wrong.add("its name says millisecond %d, and the last change before it is of %d", image.Time.UnixMilli(), v.lastTime)
	}
	if wrong.count == 0 {
		return nil
	}
	wrong.report(v.verifier, image.Name)
	v.verified.Images--
	return v.begin(ctx, image)
}

// advance applies the next segment to the state, up to the next image.
func (v *lineVerifier) advance(ctx context.Context) error {
	usable := Line{Segments: slices.DeleteFunc(slices.Clone(v.line.Segments), func(x Segment) bool { return v.bad[x.Object.Name] })}
	x, ok := usable.next(v.at)
	if !ok {
		return v.end(ctx)
	}
	until := x.Until
	if image, ok := v.image(func(i Image) bool { return i.Revision > v.at }); ok {
		until = min(until, image.Revision)
	}
	return v.read(ctx, x, until)
}

// end ends the state, because no segment continues it. It reports changes that are missing.
func (v *lineVerifier) end(ctx context.Context) error {
	if !v.hole() {
		v.state = nil
		return nil
	}
	// A list that was made while a writer merged segments may lack the merged one, and the ones before too.
	if _, err := v.refresh(ctx); err != nil {
		return err
	}
	if v.hole() {
		v.state = nil
		i := slices.IndexFunc(v.line.Segments, func(x Segment) bool { return x.After > v.at })
		v.problem(fmt.Sprintf("revisions %d to %d", v.at+1, v.line.Segments[i].After),
			"their changes are missing, and later ones are there; the next segment is %s", v.line.Segments[i].Object.Name)
	}
	return nil
}

// hole reports whether no segment continues the state, not even one that cannot be used, and there are later ones.
func (v *lineVerifier) hole() bool {
	_, ok := v.line.next(v.at)
	return !ok && slices.ContainsFunc(v.line.Segments, func(x Segment) bool { return x.After > v.at })
}

// read reads a segment. If there is a state, it applies the changes above that up to the revision until; then it may end before the end
// of the segment, which is read again.
func (v *lineVerifier) read(ctx context.Context, x Segment, until int64) error {
	name := x.Object.Name
	var list []change
	shared, wrong := v.shared(x), faults{}
	err := v.eachTransaction(ctx, x, func(t *changelog.Transaction) error {
		if v.state != nil && t.Revision > until && until < x.Until {
			return errStop
		}
		if shared {
			list = append(list, change{t.Revision, v.sumOf(t)})
		}
		if v.state != nil && t.Revision > v.at && t.Revision <= until {
			v.apply(t, &wrong)
		}
		return nil
	})
	wrong.report(v.verifier, name)
	switch {
	case err == nil:
		if !v.done[name] {
			v.verified.Segments++
		}
		v.done[name], v.changes[name] = true, list
	case !errors.Is(err, errStop):
		v.done[name], v.bad[name] = true, true
		return v.failed(ctx, name, err)
	}
	v.at = max(v.at, until)
	return nil
}

// apply applies a transaction to the state.
func (v *lineVerifier) apply(t *changelog.Transaction, wrong *faults) {
	for i := range t.Operations {
		op := &t.Operations[i]
		was, there := v.state[op.Key]
		switch {
		case !op.Deleted && there:
			v.state[op.Key] = held{was.create, t.Revision, v.sum(op.Value), 0}
		case !op.Deleted:
			v.state[op.Key] = held{t.Revision, t.Revision, v.sum(op.Value), 0}
		case there:
			delete(v.state, op.Key)
		default:
			wrong.add("revision %d deletes %s, which is not there: a change before it is missing", t.Revision, op.Key)
		}
	}
	v.at, v.lastTime = t.Revision, 0
	if !t.Time.IsZero() {
		v.lastTime = t.Time.UnixMilli()
	}
	v.verified.Transactions++
	v.verified.Keys = max(v.verified.Keys, int64(len(v.state)))
}

// maxGone bounds how many objects a writer may remove while a line is verified.
const maxGone = 10_000

// failed reports that an object cannot be read, unless a writer has removed it. It returns an error if nothing more can be read.
func (v *lineVerifier) failed(ctx context.Context, name string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case withoutKey(err):
		return fmt.Errorf("%s: %w", name, err)
	case errors.Is(err, bucket.ErrNotFound):
		x, err := v.refresh(ctx)
		if err != nil {
			return err
		}
		if v.gone++; v.gone > maxGone {
			return errors.New("the copy changes too fast to be verified")
		}
		if !x.has(name) {
			return nil
		}
	}
	v.problem(name, "%v", err)
	return nil
}

// has reports whether there is an object of a name.
func (x *Index) has(name string) bool {
	return slices.ContainsFunc(x.Epochs, func(e *Epoch) bool {
		return slices.ContainsFunc(e.Images, func(i Image) bool { return i.Name == name }) ||
			slices.ContainsFunc(e.Segments, func(s Segment) bool { return s.Object.Name == name })
	})
}

// refresh lists the copy again.
func (v *lineVerifier) refresh(ctx context.Context) (*Index, error) {
	x, err := ReadIndex(ctx, v.bucket)
	if err != nil {
		return nil, err
	}
	for _, l := range x.Lines() {
		if slices.Contains(l.Epochs, v.line.Epochs[0]) {
			v.line = l
			break
		}
	}
	return x, nil
}

// shared reports whether a segment has revisions that another one has too.
func (v *lineVerifier) shared(x Segment) bool {
	return slices.ContainsFunc(v.line.Segments, func(o Segment) bool {
		return o.Object.Name != x.Object.Name && max(o.After, x.After) < min(o.Until, x.Until)
	})
}

// compareSegments reports segments that have revisions in common and disagree, and counts those of which others have all changes.
func (v *lineVerifier) compareSegments() {
	list := v.line.Segments
	for i, a := range list {
		contained := false
		for j, b := range list {
			if i == j || max(a.After, b.After) >= min(a.Until, b.Until) {
				continue
			}
			equal := a.After == b.After && a.Until == b.Until
			contained = contained || b.After <= a.After && b.Until >= a.Until && (!equal || j < i)
			if j < i || v.bad[a.Object.Name] || v.bad[b.Object.Name] {
				continue
			}
			if revision, ok := v.difference(a, b); ok {
				v.problem(a.Object.Name, "it and %s disagree about revision %d", b.Object.Name, revision)
			}
		}
		if contained {
			v.verified.Contained++
		}
	}
}

// difference returns the first revision of which two segments have different changes. ok is false if there is none.
func (v *lineVerifier) difference(a, b Segment) (revision int64, ok bool) {
	common := func(x Segment) []change {
		return slices.DeleteFunc(slices.Clone(v.changes[x.Object.Name]), func(c change) bool {
			return c.revision <= max(a.After, b.After) || c.revision > min(a.Until, b.Until)
		})
	}
	one, two := common(a), common(b)
	for i := range min(len(one), len(two)) {
		if one[i] != two[i] {
			return min(one[i].revision, two[i].revision), true
		}
	}
	if len(one) == len(two) {
		return 0, false
	}
	longer := slices.MaxFunc([][]change{one, two}, func(a, b []change) int { return cmp.Compare(len(a), len(b)) })
	return longer[min(len(one), len(two))].revision, true
}

// maxFaults is how many faults of an object are reported one by one.
const maxFaults = 5

// faults are what is wrong with an object.
type faults struct {
	list  []string // the first ones
	count int
}

func (f *faults) add(format string, args ...any) {
	if f.count++; f.count <= maxFaults {
		f.list = append(f.list, fmt.Sprintf(format, args...))
	}
}

// report reports the faults of an object.
func (f *faults) report(v *verifier, where string) {
	for _, text := range f.list {
		v.problem(where, "%s", text)
	}
	if f.count > maxFaults {
		v.problem(where, "%d more faults of this kind", f.count-maxFaults)
	}
}
