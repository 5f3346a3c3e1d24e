package etcd

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/copies"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
	"github.com/keelson-dev/keelson/internal/storage/etcd"
)

// TestCopyOfCluster copies a cluster whose leader is stopped meanwhile, and compares the restored copy with the cluster: keys, values,
// revisions, and when they expire.
func TestCopyOfCluster(t *testing.T) {
	c := start(t, 3, nil)
	to := filepath.Join(t.TempDir(), "copy")
	client := serve(t, c, func(conf *config.Config) {
		conf.Storage.DataDir = t.TempDir()
		conf.Storage.Backup.To, conf.Storage.Backup.Interval = to, 100*time.Millisecond
	})
	ctx := t.Context()
	for i := range 60 {
		if i == 30 {
			c.stop(c.leader())
		}
		wait.NoError(t, "a ConfigMap", func() error {
			_, err := client.CoreV1().ConfigMaps("default").Create(ctx, configMap(fmt.Sprint("c", i)), metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) { // an earlier try took effect
				return nil
			}
			return err
		})
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "p", Namespace: "default"},
	}
	made, err := client.CoreV1().Events("default").Create(ctx, event, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last, err := strconv.ParseInt(made.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	b, closeBucket, err := bucket.Open(ctx, to, bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBucket()
	var p *copies.Plan
	wait.NoError(t, "the Event in the copy", func() error {
		x, err := copies.ReadIndex(ctx, b)
		if err != nil {
			return err
		}
		if p, err = x.Plan(copies.Target{}); err == nil && p.End < last {
			err = fmt.Errorf("the copy ends at %d, before %d", p.End, last)
		}
		return err
	})
	o := embedded.Options{Dir: filepath.Join(t.TempDir(), "store"), Logger: quiet()}
	restored, err := p.Restore(ctx, b, o, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]storage.Entry{}
	for e, err := range c.open(t, etcd.Options{}).Snapshot(ctx, restored.Revision) {
		if err != nil {
			t.Fatal(err)
		}
		want[e.Key] = e.Entry
	}
	r, err := embedded.OpenReader(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	export, err := r.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer export.Close()
	for record, err := range export.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		w := want[record.Key]
		if delete(want, record.Key); w.ModRevision != record.ModRevision || w.CreateRevision != record.CreateRevision ||
			string(w.Value) != string(record.Value) {
			t.Errorf("%s: revisions %d and %d, not %d and %d", record.Key, record.CreateRevision, record.ModRevision, w.CreateRevision, w.ModRevision)
		}
		left := time.Until(time.UnixMilli(record.Deadline))
		if isEvent := strings.HasPrefix(record.Key, "/registry/events/"); isEvent && (left < 50*time.Minute || left > 70*time.Minute) {
			t.Errorf("%s expires in %v", record.Key, left)
		}
		if strings.HasPrefix(record.Key, "/registry/configmaps/") && record.Deadline != 0 {
			t.Errorf("%s expires in %v", record.Key, left)
		}
	}
	for key := range want {
		t.Errorf("the copy does not have %s", key)
	}
}
