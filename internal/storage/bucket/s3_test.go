package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// operations are the methods of a Bucket.
var operations = map[string]func(context.Context, Bucket) error{
	"Get": func(ctx context.Context, b Bucket) error {
		in, err := b.Get(ctx, "a/name")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, in)
		return errors.Join(err, in.Close())
	},
	"Put":    func(ctx context.Context, b Bucket) error { return b.Put(ctx, "a/name", text("content")) },
	"Large":  func(ctx context.Context, b Bucket) error { return b.Put(ctx, "a/name", large) },
	"Delete": func(ctx context.Context, b Bucket) error { return b.Delete(ctx, "a/name") },
	"Forget": func(ctx context.Context, b Bucket) error { return b.DeleteSwapped(ctx, "a/name") },
	"List":   func(ctx context.Context, b Bucket) error { return second(b.List(ctx)) },
	"Load":   func(ctx context.Context, b Bucket) error { return third(b.Load(ctx, "a/name")) },
	"Create": func(ctx context.Context, b Bucket) error { return second(b.Swap(ctx, "a/name", []byte("content"), "")) },
	"Swap": func(ctx context.Context, b Bucket) error {
		return second(b.Swap(ctx, "a/name", []byte("content"), `"1"`))
	},
	"Probe": Probe,
}

// large writes two parts and a half.
func large(w io.Writer) error {
	for range 5 {
		if _, err := w.Write(make([]byte, partSize/2)); err != nil {
			return err
		}
	}
	return nil
}

const (
	created   = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>"
	completed = "<CompleteMultipartUploadResult><ETag>3</ETag></CompleteMultipartUploadResult>"
	webPage   = "<html><body><p>Welcome</p></body></html>"
	samePage  = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>"
	emptyList = "<ListBucketResult><Name>bkt</Name><IsTruncated>false</IsTruncated></ListBucketResult>"

	put      = "PUT /bkt/pre/a/name\n"
	swap     = "PUT /bkt/pre/a/name.swapped\n"
	load     = "GET /bkt/pre/a/name.swapped\n"
	get      = "GET /bkt/pre/a/name\n"
	create   = "POST /bkt/pre/a/name?uploads=\n"
	complete = "POST /bkt/pre/a/name?uploadId=u1\n"
	abort    = "DELETE /bkt/pre/a/name?uploadId=u1\n"
)

func part(n int) string { return fmt.Sprintf("PUT /bkt/pre/a/name?partNumber=%d&uploadId=u1\n", n) }

// TestS3Faults has what a service or a network may do. Each operation ends in time, with an error that names the bucket and the object,
// says what to do, and has nothing secret.
func TestS3Faults(t *testing.T) {
	ok, tag := says(`"1"`, ""), says(`"1"`, "OTHER \ncontent")
	for name, test := range map[string]struct {
		operation string
		answers   []answer
		want      error  // an error that errors.Is finds
		says      string // what the error says; "" and no want: there is none
		requests  string
	}{
		"500, then good": {"Swap", []answer{refuses(500, "InternalError"), ok}, nil, "", swap + swap},
		"503, then good": {"Put", []answer{refuses(503, "SlowDown"), refuses(503, "SlowDown"), ok}, nil, "", put + put + put},
		"503 for ever":   {"Put", []answer{refuses(503, "SlowDown")}, nil, "limits the rate", put + put + put + put},
		"500 for ever":   {"Get", []answer{refuses(500, "InternalError")}, nil, "the service has a fault", get + get + get + get},
		"hangs":          {"Get", []answer{hangs}, nil, "no progress for 30s", get + get + get + get},
		"hangs, small":   {"Load", []answer{hangs}, context.DeadlineExceeded, "in time", load + load},
		"hangs once":     {"Swap", []answer{hangs, ok}, nil, "", swap + swap},
		"hangs in an upload": {
			"Large", []answer{says("", created), ok, stops, stops, stops, stops, ok},
			nil, "the connection ", create + part(1) + part(2) + part(2) + part(2) + part(2) + abort,
		},
		"cut in an upload": {"Put", []answer{cuts, ok}, nil, "", put + put},
		"cut in a part": {
			"Large", []answer{says("", created), cuts, ok, ok, ok, says("", completed)},
			nil, "", create + part(1) + part(1) + part(2) + part(3) + complete,
		},
		"cut for ever": {"Put", []answer{cuts}, nil, "the connection has failed", put + put + put + put},
		"cut in a download": {
			"Get", []answer{halfBody(func(*http.Request) { panic(http.ErrAbortHandler) })},
			io.ErrUnexpectedEOF, "", get,
		},
		"hangs in a download": {
			"Get", []answer{halfBody(func(r *http.Request) { <-r.Context().Done() })},
			os.ErrDeadlineExceeded, "no progress for 30s", get,
		},
		"created by another":  {"Create", []answer{refuses(412, "PreconditionFailed")}, ErrChanged, "", swap},
		"replaced by another": {"Swap", []answer{refuses(412, "PreconditionFailed")}, ErrChanged, "", swap},
		"being replaced":      {"Swap", []answer{refuses(409, "ConditionalRequestConflict")}, ErrChanged, "", swap},
		"deleted by another":  {"Swap", []answer{refuses(404, "NoSuchKey")}, ErrChanged, "", swap},
		"lost, then replaced": {
			"Swap", []answer{cuts, refuses(412, "PreconditionFailed"), tag},
			errUnknown, "", swap + swap + load,
		},
		"lost, then deleted": {
			"Swap", []answer{cuts, refuses(404, "NoSuchKey"), refuses(404, "NoSuchKey")},
			errUnknown, "", swap + swap + load,
		},
		"lost, then unreachable": {
			"Swap", []answer{cuts, refuses(412, "PreconditionFailed"), refuses(403, "AccessDenied")},
			errUnknown, "it is not known whether the object was replaced: the service", swap + swap + load,
		},
		"no such object":       {"Get", []answer{refuses(404, "NoSuchKey")}, ErrNotFound, "", get},
		"no such small object": {"Load", []answer{refuses(404, "NoSuchKey")}, ErrNotFound, "", load},
		"nothing to delete": {
			"Delete", []answer{refuses(404, "NoSuchKey")},
			nil, "", "DELETE /bkt/pre/a/name\n",
		},
		"no small object to delete": {
			"Forget", []answer{refuses(404, "NoSuchKey")},
			nil, "", "DELETE /bkt/pre/a/name.swapped\n",
		},
		"no such bucket":        {"Get", []answer{refuses(404, "NoSuchBucket")}, nil, "create it", get},
		"create without bucket": {"Swap", []answer{refuses(404, "NoSuchBucket")}, nil, "create it", swap},
		"page of a proxy":       {"Get", []answer{says("", webPage)}, errNotS3, "", get},
		"put to a proxy":        {"Put", []answer{says("", webPage)}, errNotS3, "", put},
		"swap at a proxy":       {"Swap", []answer{says("", webPage)}, errNotS3, "", swap},
		"upload to a proxy":     {"Large", []answer{says("", webPage)}, errNotS3, "", create},
		"part to a proxy":       {"Large", []answer{says("", created), says("", webPage)}, errNotS3, "", create + part(1) + abort},
		"completed by a proxy": {
			"Large", []answer{says("", created), ok, ok, ok, says("", webPage)},
			errNotS3, "", create + part(1) + part(2) + part(3) + complete + abort,
		},
		"list of a proxy":   {"List", []answer{says("", webPage)}, errNotS3, "", list("")},
		"no XML":            {"List", []answer{says("", "<ListBucketResult><Na")}, nil, "not that of an S3 service", list("")},
		"text":              {"List", []answer{says("", "hello")}, errNotS3, "", list("")},
		"page without next": {"List", []answer{says("", strings.Replace(emptyList, "false", "true", 1))}, errNotS3, "", list("")},
		"same page for ever": {
			"List", []answer{says("", samePage)},
			errNotS3, "", list("") + list("x"),
		},
		"404 of a proxy": {"Get", []answer{says404}, nil, "check --backup-s3-endpoint", get},
		"expired":        {"Put", []answer{refuses(403, "ExpiredToken")}, nil, "have expired: renew them", put},
		"unknown key":    {"List", []answer{refuses(403, "InvalidAccessKeyId")}, nil, "does not know the access key", list("")},
		"wrong secret":   {"Load", []answer{refuses(403, "SignatureDoesNotMatch")}, nil, "the secret key is wrong", load},
		"wrong clock":    {"Delete", []answer{refuses(403, "RequestTimeTooSkewed")}, nil, "set it", "DELETE /bkt/pre/a/name\n"},
		"not allowed":    {"Create", []answer{refuses(403, "AccessDenied")}, nil, "allow s3:ListBucket", swap},
		"another 403": {
			"Create", []answer{refuses(403, "Other\nCode "+testSession+strings.Repeat("x", 1000))},
			nil, "allow s3:ListBucket", swap,
		},
		"another region": {"Get", []answer{refuses(301, "PermanentRedirect")}, nil, "--backup-s3-region", get},
		"full":           {"Put", []answer{refuses(507, "XMinioStorageFull")}, nil, "is full", put},
		"part not allowed": {
			"Large", []answer{says("", created), refuses(403, "AccessDenied")},
			nil, "allow s3:", create + part(1) + abort,
		},
		"unknown condition": {"Swap", []answer{refuses(501, "NotImplemented")}, ErrNoConditions, "", swap},
		"foreign content":   {"Load", []answer{says(`"1"`, "no header")}, nil, "was not written by this program", load},
		"large content":     {"Load", []answer{says(`"1"`, "ID \n"+strings.Repeat("x", MaxSwapped+1))}, nil, "larger than", load},
	} {
		t.Run(name, func(t *testing.T) {
			withScript(t, test.answers, func(t *testing.T, b Bucket, s *script) {
				began := time.Now()
				err := operations[test.operation](t.Context(), b)
				if took := time.Since(began); took > 4*stalled+4*longestPause {
					t.Errorf("it took %v", took)
				}
				if test.want != nil && !errors.Is(err, test.want) || (err == nil) != (test.want == nil && test.says == "") {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				if err != nil {
					checkMessage(t, err.Error(), test.operation, test.says)
				}
				if got := s.seen(); got != test.requests {
					t.Errorf("the requests were\n%swant\n%s", got, test.requests)
				}
			})
		})
	}
}

func list(token string) string {
	if token != "" {
		token = "continuation-token=" + token + "&"
	}
	return "GET /bkt?" + token + "list-type=2&prefix=pre%2F\n"
}

func checkMessage(t *testing.T, message, operation, want string) {
	t.Helper()
	if !strings.Contains(message, "s3://bkt/pre/") || operation != "List" && !strings.Contains(message, "a/name") ||
		!strings.Contains(message, want) || strings.Contains(message, "\n") || len(message) > 500 {
		t.Errorf("the error does not name the bucket and the object, or does not say %q:\n%s", want, message)
	}
	if strings.Contains(message, testSecret) || strings.Contains(message, testSession) {
		t.Errorf("the error has a secret: %s", message)
	}
}

// stops reads nothing of a request, and answers nothing.
func stops(http.ResponseWriter, *http.Request) { time.Sleep(2 * stalled) } // in the bubble

func says404(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, webPage)
}

// halfBody answers with a half of the body, and then calls end.
func halfBody(end func(*http.Request)) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"1"`)
		w.Header().Set("Content-Length", "2000")
		_, _ = w.Write(make([]byte, 1000))
		w.(http.Flusher).Flush()
		end(r)
	}
}

// TestS3LostAnswer has a Swap whose answer is lost. The repeated request is refused because of the first, which has succeeded.
func TestS3LostAnswer(t *testing.T) {
	var stored string
	store := func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		stored = string(b)
		panic(http.ErrAbortHandler)
	}
	read := func(w http.ResponseWriter, r *http.Request) { says(`"2"`, stored)(w, r) }
	withScript(t, []answer{store, refuses(412, "PreconditionFailed"), read}, func(t *testing.T, b Bucket, s *script) {
		tag, err := b.Swap(t.Context(), "a/name", []byte("content"), `"1"`)
		if err != nil || tag != `"2"` || s.seen() != swap+swap+load {
			t.Errorf("Swap returns %q (%v) after\n%s", tag, err, s.seen())
		}
	})
}

// TestS3Probe has services that keep no condition, or only one.
func TestS3Probe(t *testing.T) {
	ok, no := says(`"1"`, ""), refuses(412, "PreconditionFailed")
	for name, test := range map[string]struct {
		answers  []answer
		requests int
	}{
		"none":             {[]answer{ok}, 2 + 1},
		"If-None-Match":    {[]answer{ok, no, ok, ok}, 4 + 1},
		"not implemented":  {[]answer{refuses(501, "NotImplemented")}, 1 + 1},
		"writes and fails": {[]answer{ok, no, ok, no, says(`"1"`, "ID \nwrong"), ok}, 5 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			withScript(t, test.answers, func(t *testing.T, b Bucket, s *script) {
				if err := Probe(t.Context(), b); !errors.Is(err, ErrNoConditions) {
					t.Errorf("the probe returns %v", err)
				}
				got := s.seen()
				if strings.Count(got, "\n") != test.requests || strings.Count(got, "/bkt/pre/probe/") != test.requests ||
					!strings.Contains(got, "DELETE ") {
					t.Errorf("the requests were\n%s", got)
				}
			})
		})
	}
}

// TestS3Conditions looks at the headers of conditional requests.
func TestS3Conditions(t *testing.T) {
	var headers []string
	look := func(w http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header.Get("If-Match")+"|"+r.Header.Get("If-None-Match"))
		says(fmt.Sprintf(`"%d"`, len(headers)), "")(w, r)
	}
	withScript(t, []answer{look}, func(t *testing.T, b Bucket, _ *script) {
		first, err := b.Swap(t.Context(), "a/name", nil, "")
		if err != nil || first != `"1"` {
			t.Errorf("Swap returns %q (%v)", first, err)
		}
		if second, err := b.Swap(t.Context(), "a/name", nil, first); err != nil || second != `"2"` {
			t.Errorf("Swap returns %q (%v)", second, err)
		}
		if got := strings.Join(headers, " "); got != `|* "1"|` {
			t.Errorf("the conditions were %s", got)
		}
	})
}

// TestS3UploadIsAborted has writers that fail, panic, or whose context ends in a large object, while a part is sent. That part is given up.
func TestS3UploadIsAborted(t *testing.T) {
	failing := errors.New("no more data")
	for name, end := range map[string]func(cancel func()) error{
		"fails":   func(func()) error { return failing },
		"panics":  func(func()) error { panic(failing) },
		"context": func(cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			ok := says(`"1"`, "")
			withScript(t, []answer{says("", created), ok, hangs, ok}, func(t *testing.T, b Bucket, s *script) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				func() {
					defer func() { _ = recover() }()
					err := b.Put(ctx, "a/name", func(w io.Writer) error {
						err := large(w)
						synctest.Wait() // until the service has the part
						return errors.Join(err, end(cancel))
					})
					if !errors.Is(err, failing) && !errors.Is(err, context.Canceled) {
						t.Errorf("Put returns %v", err)
					}
				}()
				if took := time.Since(began); took > abortLimit/2 {
					t.Errorf("it took %v", took)
				}
				if got := s.seen(); got != create+part(1)+part(2)+abort {
					t.Errorf("the requests were\n%s", got)
				}
			})
		})
	}
}

// TestS3SlowProgress has connections that are slow, but go on all the time.
func TestS3SlowProgress(t *testing.T) {
	const size, step = 1 << 20, 32 << 10
	upload := func(w http.ResponseWriter, r *http.Request) {
		for {
			n, err := io.CopyN(io.Discard, r.Body, step)
			if n < step || err != nil {
				break
			}
			time.Sleep(stalled * 2 / 3) // in the bubble
		}
		says(`"1"`, "")(w, r)
	}
	download := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"1"`)
		for range size / step {
			_, _ = w.Write(make([]byte, step))
			w.(http.Flusher).Flush()
			time.Sleep(stalled * 2 / 3)
		}
	}
	withScript(t, []answer{upload, download}, func(t *testing.T, b Bucket, s *script) {
		began := time.Now()
		if err := b.Put(t.Context(), "a/name", text(strings.Repeat("x", size))); err != nil {
			t.Error(err)
		}
		if got := contentOf(t, b, "a/name"); len(got) != size || s.seen() != put+get || time.Since(began) < 10*stalled {
			t.Errorf("the object has %d bytes after %v and\n%s", len(got), time.Since(began), s.seen())
		}
	})
}

// TestS3UnusedConnection has a pause between two requests, in which the connection is closed.
func TestS3UnusedConnection(t *testing.T) {
	withScript(t, []answer{says(`"1"`, "")}, func(t *testing.T, b Bucket, s *script) {
		for i := range 5 {
			if err := b.Put(t.Context(), "a/name", text("")); err != nil || s.seen() != strings.Repeat(put, i+1) {
				t.Errorf("Put returns %v after\n%s", err, s.seen())
			}
			time.Sleep(unused + time.Duration(i)*(stalled-unused)/2) // in the bubble
		}
	})
}

func TestS3VirtualHost(t *testing.T) {
	var host string
	look := func(w http.ResponseWriter, r *http.Request) {
		host = r.Host
		says(`"1"`, "")(w, r)
	}
	for virtual, want := range map[bool]string{true: "bkt.s3.test PUT /pre/a/name\n", false: "s3.test " + put} {
		withOptions(t, Options{VirtualHost: virtual}, []answer{look}, func(t *testing.T, b Bucket, s *script) {
			if err := b.Put(t.Context(), "a/name", text("")); err != nil || host+" "+s.seen() != want {
				t.Errorf("Put returns %v after the request to %s %s, want %s", err, host, s.seen(), want)
			}
		})
	}
}

// TestS3PartsAreBounded counts the parts of an upload that are sent at the same time.
func TestS3PartsAreBounded(t *testing.T) {
	var now, most atomic.Int32
	sent := func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(time.Second) // in the bubble; the writer goes on meanwhile
		says(`"1"`, "")(w, r)
	}
	withScript(t, []answer{says("", created), sent, sent, sent, says("", completed)}, func(t *testing.T, b Bucket, _ *script) {
		if err := b.Put(t.Context(), "a/name", large); err != nil || most.Load() != 1 {
			t.Errorf("Put returns %v, %d parts were sent at once", err, most.Load())
		}
	})
	for size, want := range map[int]int{1: firstBuffer, firstBuffer + 1: 2 * (firstBuffer + 1), partSize - 1: partSize, partSize: partSize} {
		if got := cap(grow(nil, size)); got != want {
			t.Errorf("a buffer for %d bytes has %d", size, got)
		}
	}
}

func TestS3List(t *testing.T) {
	const page = `<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>next</NextContinuationToken>%s</ListBucketResult>`
	object := func(keys ...string) (s string) {
		for _, k := range keys {
			s += "<Contents><Key>" + k + "</Key><Size>7</Size></Contents>"
		}
		return s
	}
	withScript(t, []answer{
		says("", fmt.Sprintf(page, true, object("pre/b", "pre/a/", "pre/lock.swapped", "pre/", "other/x", "pre/.hidden"))),
		says("", fmt.Sprintf(page, false, object("pre/a-1", "pre/a/1"))),
	}, func(t *testing.T, b Bucket, s *script) {
		got, err := b.List(t.Context())
		if want := "[{a-1 7} {a/1 7} {b 7}]"; err != nil || fmt.Sprint(got) != want || s.seen() != list("")+list("next") {
			t.Errorf("the bucket has %v (%v), want %s, after\n%s", got, err, want, s.seen())
		}
	})
}

func TestS3Credentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(key string) {
		content := "[default]\naws_access_key_id = " + key + "\naws_secret_access_key = " + testSecret + "\n"
		if err := os.WriteFile(file, []byte(content), privateFile); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	var key string
	look := func(w http.ResponseWriter, r *http.Request) {
		_, key, _ = strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ = strings.Cut(key, "/")
		says("", emptyList)(w, r)
	}
	withSettings(t, Options{}, []answer{look}, func(t *testing.T, b Bucket, s *script) {
		_, err := b.List(t.Context())
		if err == nil || s.seen() != "" {
			t.Fatalf("without credentials List returns %v", err)
		}
		checkMessage(t, err.Error(), "List", "there are no credentials: give AWS_ACCESS_KEY_ID")
		for _, step := range []struct {
			write func()
			wait  time.Duration
			want  string
		}{
			{func() { write("FIRST") }, 0, "FIRST"},
			{func() { write("SECOND") }, credentialsLimit - time.Second, "FIRST"},
			{func() {}, 2 * time.Second, "SECOND"},
			{func() { _ = os.Remove(file) }, 2 * credentialsLimit, "SECOND"}, // the file is being replaced
			{func() { write("THIRD") }, 2 * credentialsLimit, "THIRD"},
		} {
			step.write()
			time.Sleep(step.wait) // in the bubble
			if _, err := b.List(t.Context()); err != nil || key != step.want {
				t.Errorf("List returns %v with the key %s, want %s", err, key, step.want)
			}
		}
	})
}

// TestS3CredentialProcess has a program for credentials that prints a secret in a wrong way.
func TestS3CredentialProcess(t *testing.T) {
	dir := t.TempDir()
	settings := filepath.Join(dir, "config")
	content := "[default]\ncredential_process = /bin/echo " + testSecret + "\n"
	if err := os.WriteFile(settings, []byte(content), privateFile); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONFIG_FILE", settings)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "none"))
	b, closeBucket, err := Open(t.Context(), "s3://bkt/pre", Options{Endpoint: "http://127.0.0.1:1", Region: "test"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.List(t.Context())
	if err == nil {
		t.Fatal("there are credentials")
	}
	checkMessage(t, err.Error(), "List", "credential_process of the shared file has failed")
	if err := closeBucket(); err != nil {
		t.Error(err)
	}
}
