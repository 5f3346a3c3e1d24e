package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// The users whose writes the section admission sends. Writes of others, such as controllers, are allowed and not recorded.
const (
	administrator = "admin"
	impersonated  = "somebody"
)

// A reply is what a webhook answers. UID in the body is the uid of the review.
type reply struct {
	status      int
	contentType string
	body        string
}

// allowed is the reply of a webhook that allows a write, with more members of the response.
func allowed(more string) reply {
	return reply{http.StatusOK, "application/json", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true` +
		more + `}}`}
}

// patched is the reply of a webhook that patches a write.
func patched(patch string) reply {
	return allowed(`,"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(patch)) + `"`)
}

// A recorder is a program with webhooks that records what they are asked.
type recorder struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	replies map[string]reply
	asked   []call
}

type call struct {
	path    string
	request map[string]any
}

func newRecorder() *recorder {
	r := &recorder{}
	r.Server = httptest.NewTLSServer(r)
	r.Server.Config.ErrorLog = nil
	return r
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var review struct{ Request map[string]any }
	if err != nil || decode(body, &review) != nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	answer := allowed("")
	if user := text(dig(review.Request, "userInfo", "username")); user == administrator || user == impersonated {
		r.mu.Lock()
		r.asked = append(r.asked, call{req.URL.Path, review.Request})
		if given, ok := r.replies[req.URL.Path]; ok {
			answer = given
		}
		r.mu.Unlock()
	}
	if answer.contentType != "" {
		w.Header().Set("Content-Type", answer.contentType)
	}
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, strings.ReplaceAll(answer.body, "UID", text(review.Request["uid"]))) // the server may be gone
}

// begin sets the replies by path and forgets what was asked.
func (r *recorder) begin(replies map[string]reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replies, r.asked = replies, nil
}

// calls returns what was asked since begin. Validating webhooks are called concurrently: their calls are sorted.
func (r *recorder) calls() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.asked)
	for i := 0; i < len(out); {
		end := i
		for end < len(out) && validates(out[end]) == validates(out[i]) {
			end++
		}
		if validates(out[i]) {
			slices.SortStableFunc(out[i:end], func(a, b call) int { return strings.Compare(a.path, b.path) })
		}
		i = end
	}
	return out
}

func validates(c call) bool { return strings.HasPrefix(c.path, "/judge") }

// hook is one webhook of a configuration.
type hook struct{ path, rest string }

// configuration returns a configuration of webhooks.
func (r *recorder) configuration(kind, name string, hooks ...hook) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
	var all []string
	for _, h := range hooks {
		all = append(all, fmt.Sprintf(`{"name":"%s.%s.example.org","clientConfig":{"url":%q,"caBundle":%q},"admissionReviewVersions":["v1"],"sideEffects":"None",%s}`,
			strings.Trim(h.path, "/"), name, r.URL+h.path, base64.StdEncoding.EncodeToString(ca), h.rest))
	}
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"webhooks":[%s]}`,
		kind, name, strings.Join(all, ","))
}

// escaped returns a text as JSON.
func escaped(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text can be encoded
	return strings.TrimSpace(b.String())
}
