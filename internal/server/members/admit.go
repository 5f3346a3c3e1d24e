package members

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/object/apierr"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/storage/member"
)

// The paths that a joining server asks without credentials of the API.
const (
	// AuthorityPath has the certificates with which clients verify the server.
	AuthorityPath = "/keelson/authority"
	// JoinPath has the keys of the cluster, for a server with a token.
	JoinPath = "/keelson/join"
)

// tokenHeader is the header with the token. It is not Authorization, because no user logs in with it.
const tokenHeader = "Keelson-Join-Token"

// EncryptionFile is the path in the data directory of the encryption configuration that a joining server was given.
const EncryptionFile = datadir.PKI + "/encryption-provider-config.yaml"

// handedOver are the files that a joining server gets, by their path in the data directory: the authorities with their keys, and the key
// of service account tokens. Each server makes its own certificates with them.
var handedOver = []string{
	datadir.PKI + "/ca.crt", datadir.PKI + "/ca.key", datadir.PKI + "/front-proxy-ca.crt", datadir.PKI + "/front-proxy-ca.key",
	datadir.PKI + "/members-ca.crt", datadir.PKI + "/members-ca.key", datadir.PKI + "/sa.key", EncryptionFile,
}

// hand answers a server with a token with the keys of the cluster, if it can become a member.
func (c *Cluster) hand(ctx context.Context, token string, r *joinRequest) (joinAnswer, error) {
	if err := c.checkToken(ctx, token); err != nil {
		if errors.Is(err, errToken) {
			err = apierr.New(http.StatusUnauthorized, "Unauthorized", err.Error())
		}
		return joinAnswer{}, err
	}
	if err := comparable(r.Kubernetes); err != nil {
		return joinAnswer{}, conflict("%v", err)
	}
	var answer joinAnswer
	for _, d := range differences(c.Flags, r.Flags) {
		if d.Refused {
			return joinAnswer{}, conflict("the members of a cluster must have the same settings: %v", d)
		}
		answer.Warnings = append(answer.Warnings, d.String())
	}
	list, err := c.member.Load().List(ctx)
	if err != nil {
		return joinAnswer{}, err
	}
	for _, i := range list {
		if !i.Learner {
			answer.Peers = append(answer.Peers, i.PeerURL)
		}
	}
	all, err := c.Keys(ctx)
	if err != nil {
		return joinAnswer{}, err
	}
	answer.Files = map[string][]byte{}
	for _, name := range handedOver {
		if content := all[name]; content != nil {
			answer.Files[name] = content
		}
	}
	c.Log.Info("a server with a token gets the keys of the cluster, to join it", "name", r.Name)
	return answer, nil
}

// comparable returns an error if a server with a version cannot be a member: versions may differ by one minor.
func comparable(kubernetes string) error {
	var major, minor int
	if _, err := fmt.Sscanf(kubernetes, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the version %q is not one of Kubernetes", kubernetes)
	}
	if minor < release.Newest-1 || minor > release.Newest+1 {
		return fmt.Errorf("the server has version %s and this member has 1.%d: members may differ by one minor version", kubernetes, release.Newest)
	}
	return nil
}

func conflict(format string, args ...any) error {
	return apierr.New(http.StatusConflict, "Conflict", fmt.Sprintf(format, args...))
}

func unavailable(format string, args ...any) error {
	return apierr.New(http.StatusServiceUnavailable, "ServiceUnavailable", fmt.Sprintf(format, args...))
}

// admitRequest is the body of a request to be added to the cluster.
type admitRequest struct{ Name, PeerURL string }

// voteRequest is the body of a question whether a server has a vote.
type voteRequest struct{ ID uint64 }

// joiningKey is the beginning of the keys in etcd of servers that join, by the ID of the member. Each is removed when its server has not
// asked for joinTime.
const (
	joiningKey = "keelson.dev/members/joining/"
	joinTime   = 15 * time.Second
)

// admit adds a server to the cluster as a learner. It takes the place of a lost member with the same name, and of an earlier try of its
// own.
func (c *Cluster) admit(ctx context.Context, r *admitRequest) (admission, error) {
	m := c.member.Load()
	list, err := m.List(ctx)
	if err != nil {
		return admission{}, err
	}
	for _, i := range list {
		if i.Name != r.Name && i.PeerURL != r.PeerURL {
			continue
		}
		if !i.Learner {
			if status := c.ask(ctx, i); status.Error == "" {
				return admission{}, conflict("a member with the name %q runs at %s: give this server another name with --member-name, and "+
					"another address with --member-address", i.Name, i.PeerURL)
			}
			c.Log.Warn("a lost member is replaced", "name", i.Name, "address", i.PeerURL)
		}
		if err := m.Remove(ctx, i.ID); err != nil {
			return admission{}, unavailable("the lost member %s cannot be removed: %v", i.Name, err)
		}
	}
	id, list, err := m.Add(ctx, r.PeerURL)
	if err != nil {
		return admission{}, unavailable("the server cannot be added to the cluster now: %v", err)
	}
	if err := c.keepJoining(ctx, id); err != nil {
		return admission{}, err
	}
	answer := admission{ID: id, Members: map[string]string{r.Name: r.PeerURL}}
	for _, i := range list {
		if i.ID != id {
			answer.Members[i.Name] = i.PeerURL
		}
	}
	c.Log.Info("a server was added to the cluster; it gets a vote when it has the data", "name", r.Name, "address", r.PeerURL)
	return answer, nil
}

// keepJoining records that a learner still joins.
func (c *Cluster) keepJoining(ctx context.Context, id uint64) error {
	return c.put(ctx, joiningKey+member.IDText(id), nil, joinTime)
}

// vote gives a learner a vote, if it has the data. It reports whether it has a vote.
func (c *Cluster) vote(ctx context.Context, id uint64) (bool, error) {
	m := c.member.Load()
	list, err := m.List(ctx)
	if err != nil {
		return false, err
	}
	at := slices.IndexFunc(list, func(i member.Info) bool { return i.ID == id })
	switch {
	case at < 0:
		return false, conflict("this server is no longer in the list of members")
	case !list[at].Learner:
		return true, nil
	}
	if err := c.keepJoining(ctx, id); err != nil {
		return false, err
	}
	return m.Promote(ctx, id)
}

// forgetLearners removes the learners that have not asked for joinTime, and whose servers have so given up. seen has those that were
// found before without a key: a member that admits a server adds the learner first.
func (c *Cluster) forgetLearners(ctx context.Context, list []member.Info, seen map[uint64]bool) error {
	r, err := c.member.Load().Clients().Client.Get(ctx, joiningKey, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	joining := map[string]bool{}
	for _, kv := range r.Kvs {
		joining[string(kv.Key)] = true
	}
	for _, i := range list {
		switch {
		case !i.Learner || joining[joiningKey+member.IDText(i.ID)]:
			delete(seen, i.ID)
		case !seen[i.ID]:
			seen[i.ID] = true
		default:
			c.Log.Warn("a server that began to join and has given up is removed from the list of members", "address", i.PeerURL)
			if err := c.member.Load().Remove(ctx, i.ID); err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
				return err
			}
		}
	}
	return nil
}
