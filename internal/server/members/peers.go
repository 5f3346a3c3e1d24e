package members

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/object/apiresponse"
	"github.com/keelson-dev/keelson/internal/server/version"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// The paths at which members, and servers that have the keys of the cluster, ask a member. Each client has shown a certificate of the
// members' authority.
const (
	admitPath      = member.Prefix + "admit"
	votePath       = member.Prefix + "vote"
	statusPath     = member.Prefix + "status"
	defragmentPath = member.Prefix + "defragment"
	pastPath       = member.Prefix + "past"
)

// peerTime limits an answer of another member.
const peerTime = 2 * time.Second

// maxRequest limits the body of a request of a joining server.
const maxRequest = 256 << 10

// peerHandler answers other members.
func (c *Cluster) peerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+admitPath, answering(func(ctx context.Context, r *admitRequest) (any, error) { return c.admit(ctx, r) }))
	mux.HandleFunc("POST "+votePath, answering(func(ctx context.Context, r *voteRequest) (any, error) {
		voter, err := c.vote(ctx, r.ID)
		return struct{ Voter bool }{voter}, err
	}))
	mux.HandleFunc("POST "+statusPath, answering(func(ctx context.Context, _ *struct{}) (any, error) { return c.status(ctx) }))
	mux.HandleFunc("POST "+defragmentPath, answering(func(context.Context, *struct{}) (any, error) {
		c.beginDefragment()
		return struct{}{}, nil
	}))
	mux.HandleFunc("POST "+pastPath, c.sendPast)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.member.Load() == nil {
			apiresponse.Error(w, r, unavailable("this member starts"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// answering returns a handler that decodes the body of a request, and answers with what a function returns. It gives the function
// requestTime.
func answering[T any](answer func(context.Context, *T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := new(T)
		if r.Method == http.MethodGet {
			r.Body = io.NopCloser(strings.NewReader("{}"))
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(body); err != nil {
			apiresponse.Error(w, r, apierr.New(http.StatusBadRequest, "BadRequest", "the body cannot be read: "+err.Error()))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTime-peerTime)
		defer cancel()
		result, err := answer(ctx, body)
		if err != nil {
			apiresponse.Error(w, r, err)
			return
		}
		w.Header().Set("Content-Type", apiresponse.JSON)
		_ = json.NewEncoder(w).Encode(result) // the client is gone
	}
}

// Member is a member of the cluster as administrators see it.
type Member struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Address string `json:"address"` // for other members
	URL     string `json:"url,omitempty"`
	// Role is leader, follower, or learner: a server that joins, and has no vote yet.
	Role string `json:"role"`
	// Error says why there is no Status. "" means that the member answers.
	Error   string `json:"error,omitempty"`
	Version string `json:"version,omitempty"`
	// Shrinking says that the member writes its database anew, without the space that is free in it.
	Shrinking bool `json:"shrinking,omitempty"`
	// Behind is how many entries of the log the member has not applied, of those that the member that was asked knows.
	Behind        uint64 `json:"behind"`
	member.Status `json:"status"`
}

// memberStatus is what a member says of itself.
type memberStatus struct {
	Version   string
	Leader    uint64
	Shrinking bool
	member.Status
}

func (c *Cluster) status(ctx context.Context) (memberStatus, error) {
	m := c.member.Load()
	s, err := m.Status(ctx)
	return memberStatus{version.Keelson, m.Leader(), c.shrinking.Load(), s}, err
}

// ask asks a member for its state.
func (c *Cluster) ask(ctx context.Context, i member.Info) Member {
	m := c.member.Load()
	out := Member{Name: i.Name, ID: member.IDText(i.ID), Address: i.PeerURL, URL: i.ClientURL, Role: "follower"}
	switch {
	case i.Learner:
		out.Role = "learner"
	case i.ID == m.Leader():
		out.Role = "leader"
	}
	var s memberStatus
	var err error
	if i.ID == m.ID() {
		s, err = c.status(ctx)
	} else {
		limited, cancel := context.WithTimeout(ctx, peerTime)
		defer cancel()
		err = call(limited, c.client, http.MethodPost, i.PeerURL+statusPath, "", struct{}{}, &s)
	}
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Version, out.Shrinking, out.Status = s.Version, s.Shrinking, s.Status
	return out
}

// members returns the members with their states. They are asked at the same time.
func (c *Cluster) members(ctx context.Context) ([]Member, error) {
	list, err := c.member.Load().List(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(list))
	var asking sync.WaitGroup
	for n, i := range list {
		asking.Go(func() { out[n] = c.ask(ctx, i) })
	}
	asking.Wait()
	var newest uint64
	for _, m := range out {
		newest = max(newest, m.Index)
	}
	for n := range out {
		if m := &out[n]; m.Error == "" {
			m.Behind = newest - min(newest, m.Applied)
		}
	}
	return out, nil
}
