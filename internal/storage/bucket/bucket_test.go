package bucket_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/storage/bucket"
	"github.com/keelson-dev/keelson/internal/storage/bucket/buckettest"
)

func TestDirectory(t *testing.T) {
	buckettest.Test(t, func(t *testing.T) bucket.Bucket {
		b, closeBucket, err := bucket.Open(t.Context(), filepath.Join(t.TempDir(), "new", "bucket"), bucket.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := closeBucket(); err != nil {
				t.Error(err)
			}
		})
		return b
	})
}

// TestS3InMemory tests both the client and the service in memory that other tests use.
func TestS3InMemory(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	buckettest.Test(t, func(t *testing.T) bucket.Bucket {
		server := httptest.NewServer(buckettest.NewS3())
		t.Cleanup(server.Close)
		b, closeBucket, err := bucket.Open(t.Context(), "s3://bucket/prefix", bucket.Options{Endpoint: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := closeBucket(); err != nil {
				t.Error(err)
			}
		})
		return b
	})
}

// TestConditionsAreProbed has a service that ignores the conditions of requests.
func TestConditionsAreProbed(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	s3 := buckettest.NewS3()
	s3.Unconditional = true
	server := httptest.NewServer(s3)
	defer server.Close()
	b, closeBucket, err := bucket.Open(t.Context(), "s3://bucket", bucket.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Probe(t.Context(), b); !errors.Is(err, bucket.ErrNoConditions) {
		t.Errorf("the probe says %v", err)
	}
	if err := closeBucket(); err != nil {
		t.Error(err)
	}
}

// TestAddresses opens buckets with wrong addresses and settings. No password of them may be in an error.
func TestAddresses(t *testing.T) {
	const password = "pass/w0rd"
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	on := func(endpoint string) bucket.Options { return bucket.Options{Endpoint: endpoint, Region: "r"} }
	for _, test := range []struct {
		url     string
		options bucket.Options
		want    string // what the error says; "" if there is none
	}{
		{"s3://abc", on("http://127.0.0.1:1"), ""},
		{"s3://abc/", on("https://s3.example.com/"), ""},
		{"s3://a.b-c1/one/two_3=x.y", on("https://[::1]:9000"), ""},
		{"s3://abc/one/", bucket.Options{Region: "eu-central-1"}, ""},
		{"s3://abc", bucket.Options{Endpoint: "http://127.0.0.1:1"}, ""},
		{"s3://abc", bucket.Options{}, "--backup-s3-region"},
		{"", bucket.Options{}, "no address"},
		{"file:///tmp", bucket.Options{}, "unknown scheme"},
		{"S3://abc", bucket.Options{}, "unknown scheme"},
		{"https://user:" + password + "@host/bucket", bucket.Options{}, "unknown scheme"},
		{t.TempDir(), on("http://127.0.0.1:1"), "no settings of S3"},
		{"s3://", on(""), "BUCKET has"},
		{"s3://ab", on(""), "BUCKET has"},
		{"s3://" + strings.Repeat("a", 64), on(""), "BUCKET has"},
		{"s3://Abc", on(""), "BUCKET has"},
		{"s3://abc-/p", on(""), "BUCKET has"},
		{"s3://a..c/p", on(""), "BUCKET has"},
		{"s3://abc:80/p", on(""), "BUCKET has"},
		{"s3://key:" + password + "@abc/p", on(""), "BUCKET has"},
		{"s3:///p", on(""), "BUCKET has"},
		{"s3://abc//", on(""), "PREFIX has"},
		{"s3://abc/a//b", on(""), "PREFIX has"},
		{"s3://abc/../b", on(""), "PREFIX has"},
		{"s3://abc/a b", on(""), "PREFIX has"},
		{"s3://abc/a?b=" + password, on(""), "PREFIX has"},
		{"s3://abc/" + strings.Repeat("a/", 200) + "aa", on(""), "PREFIX has"},
		{"s3://abc", on("host:9000"), "endpoint"},
		{"s3://abc", on("ftp://host"), "endpoint"},
		{"s3://abc", on("https://"), "endpoint"},
		{"s3://abc", on("https://key:" + password + "@host"), "endpoint"},
		{"s3://abc", on("https://key:w0rd@host"), "endpoint"},
		{"s3://abc", on("https://host/?password=" + password), "endpoint"},
		{"s3://abc", bucket.Options{Region: "r", CAFile: "no/such/file"}, "no/such/file"},
		{"s3://abc", bucket.Options{Region: "r", CAFile: "bucket_test.go"}, "no certificates"},
	} {
		_, closeBucket, err := bucket.Open(t.Context(), test.url, test.options)
		switch {
		case err == nil && test.want == "":
			err = closeBucket()
			if err != nil {
				t.Error(err)
			}
		case err == nil || test.want == "" || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s with %+v: %v, want %q", test.url, test.options, err, test.want)
		case strings.Contains(err.Error(), "w0rd"):
			t.Errorf("%s with %+v: the error has the password: %v", test.url, test.options, err)
		}
	}
}

// careless is a bucket of a service that keeps no condition, or not all.
type careless struct {
	bucket.Bucket
	creates, replaces, destroys bool
}

func (c *careless) Swap(ctx context.Context, name string, content []byte, tag string) (string, error) {
	newTag, err := c.Bucket.Swap(ctx, name, content, tag)
	for errors.Is(err, bucket.ErrChanged) && (tag == "" && c.creates || tag != "" && c.replaces || c.destroys) {
		var now string
		if _, now, err = c.Load(ctx, name); err != nil {
			return "", err
		}
		if newTag, err = c.Bucket.Swap(ctx, name, content, now); err == nil && c.destroys {
			return "", bucket.ErrChanged
		}
	}
	return newTag, err
}

func TestProbe(t *testing.T) {
	b, closeBucket, err := bucket.Open(t.Context(), t.TempDir(), bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeBucket() //nolint:errcheck // nothing was written to it
	for _, c := range []*careless{{creates: true}, {replaces: true}, {destroys: true}} {
		c.Bucket = b
		if err := bucket.Probe(t.Context(), c); !errors.Is(err, bucket.ErrNoConditions) {
			t.Errorf("the probe of %+v returns %v", c, err)
		}
	}
	failing := errors.New("no connection")
	if err := bucket.Probe(t.Context(), &broken{b, failing}); !errors.Is(err, failing) || errors.Is(err, bucket.ErrNoConditions) {
		t.Errorf("the probe of a bucket that fails returns %v", err)
	}
	if list, err := b.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the probes have left %v (%v)", list, err)
	}
}

// broken is a bucket of which Swap fails.
type broken struct {
	bucket.Bucket
	err error
}

func (b *broken) Swap(context.Context, string, []byte, string) (string, error) { return "", b.err }
