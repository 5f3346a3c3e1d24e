package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/object/registry"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

func newCheck(out, errOut io.Writer) *cobra.Command {
	dataDir, snapshot, identity := config.Default().Storage.DataDir, "", ""
	c := &cobra.Command{
		Use: "check", Short: "Verify the data of a stopped server, or a snapshot",
		Long: "Check reads all data of a stopped server and changes none of it. It verifies\n" +
			"checksums, that index, log and expiry index agree, that every key is where an\n" +
			"object's key is, and that every value can be read, the history too. What is\n" +
			"wrong is printed, one line each. It locks the data directory, so run it as the\n" +
			"user of the server. If tables are damaged, it repairs a copy, store.copy in the\n" +
			"data directory, to see what is lost, and removes it; undamaged files in it are\n" +
			"links and take no space. With --snapshot it restores a snapshot to a\n" +
			"temporary directory, checks what is there, and removes it. No data directory is\n" +
			"touched.",
		Example:      "  keelson check --data-dir /var/lib/keelson",
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if snapshot != "" {
				return checkSnapshot(c.Context(), out, errOut, snapshot, identity)
			}
			return checkStopped(c.Context(), out, errOut, dataDir)
		},
	}
	c.Flags().StringVar(&dataDir, "data-dir", dataDir, dataDirUsage)
	c.Flags().StringVar(&snapshot, "snapshot", "", "check this snapshot file instead; TMPDIR needs space for its content")
	c.Flags().StringVar(&identity, "identity", "", identityUsage)
	c.MarkFlagsMutuallyExclusive("data-dir", "snapshot")
	return c
}

// checkStopped checks the data of a stopped server. If tables are damaged, it prints the losses that a repair
// would have.
func checkStopped(ctx context.Context, out, errOut io.Writer, dataDir string) error {
	stopped, err := openStopped(dataDir)
	damaged := errors.Is(err, embedded.ErrDamaged)
	if err == nil {
		var seen embedded.Verified
		seen, err = check(ctx, out, errOut, stopped.Reader, "the data in "+dataDir)
		err = errors.Join(err, stopped.Close())
		damaged = seen.DamagedFiles > 0
	}
	if !damaged {
		return err
	}
	lock, lockErr := datadir.LockDataDir(dataDir)
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	lostErr := repairedCopy(ctx, dataDir, embedded.RepairOptions{}, func(_ *embedded.Reader, done *embedded.Repaired) error {
		for _, l := range done.Lost {
			fmt.Fprintln(out, l)
		}
		fmt.Fprintf(out, "`keelson repair` would keep all but %d entries and %d older versions\n", len(done.Lost), done.Past)
		return nil
	})
	return errors.Join(err, lostErr, lock.Close())
}

// checkSnapshot restores a snapshot to a temporary directory and checks the result.
func checkSnapshot(ctx context.Context, out, errOut io.Writer, file, identity string) (err error) {
	f, err := openSnapshot(file, identity)
	if err != nil {
		return err
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "keelson-check-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o := embedded.Options{Dir: filepath.Join(dir, "store")}
	restored, err := restoreFrom(ctx, errOut, f, o, 0)
	if err != nil {
		return err
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		return oneLine(err)
	}
	_, err = check(ctx, out, errOut, r, file)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s can be restored: %d entries and %d files of keys\n", file, restored.Entries, len(restored.Files))
	if lacks := missingKeys(slices.Collect(maps.Keys(restored.Files))); lacks != "" {
		fmt.Fprintf(out, "It does not have %s\n", lacks)
	}
	return nil
}

// check checks a store and prints what is wrong. what is the name of the data in its error.
func check(ctx context.Context, out, errOut io.Writer, s *embedded.Reader, what string) (embedded.Verified, error) {
	values := valueCheck{layout: newLayout()}
	problems := 0
	bar := startProgress(errOut, "Checking", keys, values.checked.of(0))
	seen, err := s.Verify(ctx, embedded.Checks{Value: values.check, Author: checkAuthor}, func(p embedded.Problem) {
		problems++
		fmt.Fprintln(out, p)
	})
	bar.stop()
	if err != nil {
		return seen, oneLine(err)
	}
	fmt.Fprintf(out,
		"Checked %d files, %d keys in %d versions, %d log records, %d deadlines; revision %d, compacted to %d\n",
		seen.Files, seen.Keys, seen.Versions, seen.LogRecords, seen.Expiring, seen.Revision, seen.Compacted)
	if values.encrypted > 0 {
		fmt.Fprintf(out, "%d values are encrypted and were not read\n", values.encrypted)
	}
	switch problems {
	case 0:
		return seen, nil
	case 1:
		return seen, fmt.Errorf("1 thing is wrong with %s", what)
	}
	return seen, fmt.Errorf("%d things are wrong with %s", problems, what)
}

// checkAuthor checks the stored record of the author of a change.
func checkAuthor(by []byte) error {
	_, err := registry.DecodeAuthor(by)
	return err
}

// valueCheck checks the keys and values of a store. encrypted counts the values that it could not check.
type valueCheck struct {
	layout    *layout
	encrypted int64
	checked   counter
}

// encryptedPrefix is the prefix of every value that is encrypted at rest.
const encryptedPrefix = "k8s:enc:"

// envelopePrefix is the prefix of every value that is a protobuf message.
var envelopePrefix = []byte("k8s\x00")

// internalPaths are the prefixes of keys of kube-apiserver's own data, which are not resources.
var internalPaths = map[string]bool{"masterleases": true, "peerserverleases": true, "ranges": true}

// check returns the problems of a record, one line for each.
func (c *valueCheck) check(r embedded.Record) []string {
	c.checked.Add(1)
	if embedded.IsLost(r.Value) {
		return []string{"its value was lost by damage of the disk; delete it, or write it again"}
	}
	p, ok := c.layout.find(r.Key)
	switch {
	case !ok:
		return []string{"it is not below " + registry.Root}
	case p.kind == nil && !p.custom && !internalPaths[p.path]:
		return []string{fmt.Sprintf("%q is not a place of a resource", p.path)}
	}
	var wrong []string
	add := func(err error) {
		if err != nil {
			wrong = append(wrong, oneLine(err).Error())
		}
	}
	add(p.validateFormat())
	if bytes.HasPrefix(r.Value, []byte(encryptedPrefix)) {
		c.encrypted++
		return wrong
	}
	switch {
	case p.kind == nil && p.custom:
		add(p.checkCustom(r.Value))
	case p.kind == nil:
		add(checkOwn(r.Value))
	default:
		add(p.checkKind(r.Value))
	}
	return wrong
}

// validateFormat returns an error unless the part of the key after the path of its resource is [namespace/]name.
func (p *keyParts) validateFormat() error {
	namespace, name, two := strings.Cut(p.rest, "/")
	if !two {
		namespace, name = "-", p.rest
	}
	switch {
	case p.kind == nil && !p.custom:
		return nil
	case namespace == "" || name == "" || strings.Contains(name, "/") || p.kind != nil && two != p.kind.Namespaced:
		return fmt.Errorf("%q is not the name of an object of %s", p.rest, p.path)
	}
	return nil
}

// validateNames returns an error unless the names of the object match its key.
func (p *keyParts) validateNames(namespace, name string) error {
	want := name
	if namespace != "" {
		want = namespace + "/" + name
	}
	if want != p.rest {
		return fmt.Errorf("its object is %q", want)
	}
	return nil
}

// checkOwn checks a value that is not a resource.
func checkOwn(value []byte) error {
	if json.Valid(value) {
		return nil
	}
	_, err := openEnvelope(value)
	return err
}

// openEnvelope decodes the envelope of a protobuf value.
func openEnvelope(value []byte) (*runtime.Unknown, error) {
	raw, ok := bytes.CutPrefix(value, envelopePrefix)
	if !ok {
		return nil, errors.New("its value is not a protobuf envelope")
	}
	u := &runtime.Unknown{}
	if err := u.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("its protobuf envelope cannot be read: %w", err)
	}
	return u, nil
}

// storedDocument has the fields that every stored JSON object has.
type storedDocument struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

func readDocument(value []byte) (d storedDocument, err error) {
	if err := json.Unmarshal(value, &d); err != nil {
		return d, fmt.Errorf("its value is not a JSON object: %w", err)
	}
	return d, nil
}

// checkCustom checks the value of a custom resource.
func (p *keyParts) checkCustom(value []byte) error {
	d, err := readDocument(value)
	if err != nil {
		return err
	}
	group, _, _ := strings.Cut(p.path, "/")
	if got := d.GroupVersionKind(); got.Group != group || got.Kind == "" {
		return fmt.Errorf("its value is a %q of %q", d.Kind, d.APIVersion)
	}
	return p.validateNames(d.Metadata.Namespace, d.Metadata.Name)
}

// checkKind checks the value of a built-in kind.
func (p *keyParts) checkKind(value []byte) error {
	k := p.kind
	if k.Storage.JSON {
		d, err := readDocument(value)
		if err != nil {
			return err
		}
		if got := d.GroupVersionKind(); got.Group != k.Group || got.Kind != k.Name {
			return fmt.Errorf("its value is a %q of %q, not a %s", d.Kind, d.APIVersion, k.GroupKind())
		}
		if k.Storage.StoredJSON != nil {
			_, err = k.Storage.StoredJSON.Decode(value)
		} else {
			err = json.Unmarshal(value, k.Version(k.Storage.Version).New())
		}
		if err != nil {
			return fmt.Errorf("its value cannot be read: %w", err)
		}
		return p.validateNames(d.Metadata.Namespace, d.Metadata.Name)
	}
	u, err := openEnvelope(value)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(k.Versions, func(v registry.Version) bool {
		return k.GroupVersion(&v).String() == u.APIVersion
	})
	if u.Kind != k.Name || i < 0 && u.APIVersion != k.StoredVersion() {
		return fmt.Errorf("its value is a %q of %q, not a %s of %s", u.Kind, u.APIVersion, k.Name, k.StoredVersion())
	}
	obj := k.Version(k.Storage.Version).New()
	if i >= 0 { // older servers have stored other versions
		obj = k.Versions[i].New()
	}
	if err := scheme.DecodeProto(u.Raw, obj); err != nil {
		return fmt.Errorf("its value cannot be read: %w", err)
	}
	return p.validateNames(obj.GetNamespace(), obj.GetName())
}
