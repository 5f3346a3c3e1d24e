package members

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// Path is the path, below which administrators read and change the membership: GET Path, POST Path/remove and Path/move-leader, GET and
// POST Path/tokens, and POST Path/tokens/revoke. Whoever may create tokens can get all keys of the cluster, so common roles must not allow it.
const Path = "/keelson/members"

// TokenRequest asks for a token, or names one.
type TokenRequest struct {
	ID          string        `json:"id,omitempty"`
	Description string        `json:"description,omitempty"`
	Lifetime    time.Duration `json:"lifetime,omitempty"`
}

// TokenAnswer is a new token.
type TokenAnswer struct {
	Token
	Text string `json:"token"`
	URL  string `json:"url"` // for --join
}

// NameRequest names a member.
type NameRequest struct {
	Name string `json:"name"`
}

// Serves reports whether a path is for Handler.
func Serves(path string) bool { return path == Path || strings.HasPrefix(path, Path+"/") }

// Handler serves what is below Path. The caller has authorized the request.
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, reading(func(ctx context.Context) (any, error) { return c.members(ctx) }))
	mux.HandleFunc("GET "+Path+"/tokens", reading(func(ctx context.Context) (any, error) {
		list, err := c.tokens(ctx)
		for i := range list {
			list[i].Hash = ""
		}
		return list, err
	}))
	mux.HandleFunc("POST "+Path+"/tokens", answering(c.answerToken))
	mux.HandleFunc("POST "+Path+"/tokens/revoke", answering(func(ctx context.Context, r *TokenRequest) (any, error) {
		found, err := c.revokeToken(ctx, r.ID)
		if err == nil && !found {
			err = apierr.New(http.StatusNotFound, "NotFound", fmt.Sprintf("there is no token %q; it may have expired", r.ID))
		}
		return struct{}{}, err
	}))
	mux.HandleFunc("POST "+Path+"/remove", answering(func(ctx context.Context, r *NameRequest) (any, error) {
		id, err := c.find(ctx, r.Name)
		if err == nil {
			err = c.member.Load().Remove(ctx, id)
		}
		return struct{}{}, err
	}))
	mux.HandleFunc("POST "+Path+"/move-leader", answering(func(ctx context.Context, r *NameRequest) (any, error) {
		var id uint64
		var err error
		if r.Name != "" {
			id, err = c.find(ctx, r.Name)
		}
		if err == nil {
			err = c.member.Load().MoveLeader(ctx, id)
		}
		return struct{}{}, err
	}))
	return mux
}

func (c *Cluster) answerToken(ctx context.Context, r *TokenRequest) (any, error) {
	switch {
	case r.Lifetime == 0:
		r.Lifetime = DefaultTokenTime
	case r.Lifetime < time.Minute || r.Lifetime > maxTokenTime:
		return nil, apierr.New(http.StatusBadRequest, "BadRequest", "a token is valid for 1 minute to a year")
	}
	text, t, err := c.createToken(ctx, r.Description, r.Lifetime)
	return TokenAnswer{t, text, c.place.URL}, err
}

// find returns the ID of the member with a name or an ID.
func (c *Cluster) find(ctx context.Context, name string) (uint64, error) {
	list, err := c.member.Load().List(ctx)
	if err != nil {
		return 0, err
	}
	for _, i := range list {
		if i.Name == name && name != "" || member.IDText(i.ID) == name {
			return i.ID, nil
		}
	}
	return 0, apierr.New(http.StatusNotFound, "NotFound", fmt.Sprintf("there is no member %q", name))
}

// reading is answering for requests without a body.
func reading(answer func(context.Context) (any, error)) http.HandlerFunc {
	return answering(func(ctx context.Context, _ *struct{}) (any, error) { return answer(ctx) })
}

// ServesJoin reports whether a request is for Open.
func ServesJoin(r *http.Request) bool { return r.URL.Path == JoinPath || r.URL.Path == AuthorityPath }

// Open serves AuthorityPath and JoinPath, for servers that have no credentials of the API.
func (c *Cluster) Open() http.Handler {
	join := func(w http.ResponseWriter, r *http.Request) {
		answering(func(ctx context.Context, body *joinRequest) (any, error) {
			return c.hand(ctx, r.Header.Get(tokenHeader), body)
		})(w, r)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+JoinPath, join)
	mux.HandleFunc("GET "+AuthorityPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(c.Roots()) // the client is gone
	})
	return mux
}
