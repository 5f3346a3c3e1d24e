package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"filippo.io/age"

	"github.com/keelson-dev/keelson/internal/storage/backup"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/changelog"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// Restored is a state that was made out of a copy.
type Restored struct {
	Revision int64
	// Time is when the last change was made.
	Time time.Time
	// Files are the files of the server that the image has.
	Files map[string][]byte
}

// Restore makes a store in o.Dir, which must not contain one, as a plan says: with the revisions that it had. All objects are
// verified. work is a directory for the image while it is read. After an error, o.Dir cannot be used.
func (p *Plan) Restore(
	ctx context.Context, b bucket.Bucket, o embedded.Options, work string, identities []age.Identity,
) (out Restored, err error) {
	path, err := p.fetchImage(ctx, b, work)
	if path != "" {
		defer func() { err = errors.Join(err, os.Remove(path)) }()
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w", p.Image.Name, err)
	}
	f, err := backup.OpenFile(path, identities)
	if err != nil {
		return out, fmt.Errorf("%s: %w", p.Image.Name, err)
	}
	defer f.Close()
	image, err := backup.Restore(ctx, f, o, backup.RestoreOptions{KeepRevisions: true, KeepDeadlines: true, Now: p.Image.Time})
	if err != nil {
		return out, fmt.Errorf("%s: %w", p.Image.Name, err)
	}
	if image.Revision != p.Image.Revision {
		return out, fmt.Errorf("%s is of revision %d", p.Image.Name, image.Revision)
	}
	out = Restored{image.Revision, p.Image.Time, image.Files}
	out.Revision, err = embedded.Replay(ctx, o, p.transactions(ctx, b, opener(identities), &out))
	return out, err
}

// opener returns the function that decrypts an object.
func opener(identities []age.Identity) func(io.Reader) (io.Reader, error) {
	return func(r io.Reader) (io.Reader, error) {
		if len(identities) == 0 {
			return nil, backup.ErrEncrypted
		}
		return age.Decrypt(r, identities...)
	}
}

// fetchImage copies the image to a new file in work. If there is a path, the caller removes it, also after an error.
func (p *Plan) fetchImage(ctx context.Context, b bucket.Bucket, work string) (path string, err error) {
	in, err := b.Get(ctx, p.Image.Name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	f, err := os.CreateTemp(work, "image-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, in)
	return f.Name(), err
}

// transactions returns the transactions after the image, up to the moment of the plan. It sets the time of out to that of the last one.
func (p *Plan) transactions(
	ctx context.Context, b bucket.Bucket, open func(io.Reader) (io.Reader, error), out *Restored,
) iter.Seq2[changelog.Transaction, error] {
	return func(yield func(changelog.Transaction, error) bool) {
		last, ended := p.Image.Revision, false
		for _, x := range p.Segments {
			from := last
			err := readSegment(ctx, b, x, open, func(t *changelog.Transaction) error {
				switch {
				case t.Revision <= from || t.Revision > x.Until || ended:
					return nil // an overlap, or what does not count, or it is read only to be verified
				case p.Revision > 0 && t.Revision > p.Revision, !p.Time.IsZero() && t.Time.After(p.Time):
					ended = true
					return nil
				}
				last, out.Time = t.Revision, t.Time
				if !yield(*t, nil) {
					return errStop
				}
				return nil
			})
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(changelog.Transaction{}, err)
				return
			}
			if ended {
				return
			}
			last = x.Until
		}
	}
}
