package serviceaccount

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/machinery/audit"
	"github.com/keelson-dev/keelson/internal/machinery/request"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

const (
	minLifeSeconds = 10 * 60 // seconds
	maxLifeSeconds = 1 << 32

	// MountedLife is the lifetime that the ServiceAccount admission plug-in requests for the
	// tokens that it mounts. With --service-account-extend-token-expiration such a token
	// lives longer than requested, so that metrics show the programs that do not read the
	// token file again, before they fail.
	MountedLife = time.Hour + 7*time.Second
	// ExtendedLife is the lifetime of such a token.
	ExtendedLife = 365 * 24 * time.Hour

	// issuedCredential is the audit annotation with the credential ID of a new token. The
	// user of later requests with that token has the same ID.
	issuedCredential = "authentication.kubernetes.io/issued-credential-id"
)

// Issuer issues tokens for TokenRequests.
type Issuer struct {
	Keys KeySource
	// Name is the issuer in the tokens.
	Name string
	// Audiences are the API server's own, for a request without audiences.
	Audiences []string
	// MaxLife is the longest lifetime of a token; 0 means no limit.
	MaxLife time.Duration
	// Extend gives the tokens with MountedLife a lifetime of ExtendedLife, or of
	// MostExtended if that is less and not 0.
	Extend       bool
	MostExtended time.Duration
	Now          func() time.Time
}

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// Create handles POST of serviceaccounts/token. It is a registry.CreateFunc.
func (i *Issuer) Create(ctx context.Context, a registry.Access, r registry.CreateRequest) (registry.Object, error) {
	req := r.Body.(*authenticationv1.TokenRequest)
	if req.Name != "" && req.Name != r.Name {
		return nil, kerrors.NewInvalid(tokenRequestKind.GroupKind(), r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), req.Name, "must match the service account name if specified")})
	}
	obj, err := a.Get(ctx, accounts, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	account := obj.(*corev1.ServiceAccount)
	if req.UID != "" && req.UID != account.UID {
		return nil, kerrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind},
			r.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID,
				account.UID))
	}
	now := i.Now()
	i.setDefaults(req, account, now)
	if errs := validate(req); len(errs) > 0 {
		return nil, kerrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	if err := r.Admitted(ctx); err != nil {
		return nil, err
	}
	b, err := bindObject(ctx, a, account, req.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	i.limitLifetime(ctx, req)
	id := uuid.NewUUID()
	token, err := i.issue(ctx, req, b, string(id), now)
	if err != nil {
		return nil, kerrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	audit.Annotate(ctx, issuedCredential, credentialPrefix+string(id))
	req.Status = authenticationv1.TokenRequestStatus{
		Token:               token,
		ExpirationTimestamp: metav1.NewTime(now.Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)),
	}
	return req, nil
}

// setDefaults sets the fields that the client omitted, and those that only the server sets.
func (i *Issuer) setDefaults(req *authenticationv1.TokenRequest, account *corev1.ServiceAccount, now time.Time) {
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = i.Audiences
	}
	req.Name, req.Namespace, req.UID = account.Name, account.Namespace, account.UID
	req.CreationTimestamp = metav1.NewTime(now)
	req.Status = authenticationv1.TokenRequestStatus{}
}

func validate(req *authenticationv1.TokenRequest) field.ErrorList {
	path := field.NewPath("spec", "expirationSeconds")
	switch s := *req.Spec.ExpirationSeconds; {
	case s < minLifeSeconds:
		return field.ErrorList{field.Invalid(path, s, "may not specify a duration less than 10 minutes")}
	case s > maxLifeSeconds:
		return field.ErrorList{field.Invalid(path, s, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// limitLifetime reduces the requested lifetime to MaxLife, and warns the client of it.
func (i *Issuer) limitLifetime(ctx context.Context, req *authenticationv1.TokenRequest) {
	longest := int64(i.MaxLife / time.Second)
	if asked := *req.Spec.ExpirationSeconds; longest > 0 && asked > longest {
		request.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, longest))
		req.Spec.ExpirationSeconds = &longest
	}
}

// bindObject returns the claims for the service account and for the object that the token is
// bound to, if the request names one.
func bindObject(
	ctx context.Context, a registry.Access, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference,
) (boundClaims, error) {
	b := boundClaims{Namespace: account.Namespace, Account: reference{account.Name, string(account.UID)}}
	if ref == nil {
		return b, nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var uid types.UID
	var err error
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		uid, err = b.bindPod(ctx, a, ref.Name)
	case schema.GroupKind{Kind: "Node"}:
		b.Node, uid, err = referenceTo(ctx, a, nodes, "", ref.Name)
	case schema.GroupKind{Kind: "Secret"}:
		b.Secret, uid, err = referenceTo(ctx, a, secrets, account.Namespace, ref.Name)
	default:
		return b, kerrors.NewBadRequest("cannot bind token to object of type " + gvk.String())
	}
	if err != nil {
		return b, err
	}
	if ref.UID != "" && ref.UID != uid {
		return b, kerrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object "+
				"might have been deleted and then recreated", ref.UID))
	}
	return b, nil
}

func referenceTo(
	ctx context.Context, a registry.Access, r schema.GroupResource, namespace, name string,
) (*reference, types.UID, error) {
	obj, err := get(ctx, a, r, namespace, name)
	if err != nil {
		return nil, "", err
	}
	return &reference{obj.GetName(), string(obj.GetUID())}, obj.GetUID(), nil
}

func get(
	ctx context.Context, a registry.Access, r schema.GroupResource, namespace, name string,
) (registry.Object, error) {
	if name == "" {
		return nil, kerrors.NewBadRequest("Name parameter required.")
	}
	if texts := path.IsValidPathSegmentName(name); len(texts) > 0 {
		return nil, kerrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(texts, ";")))
	}
	return a.Get(ctx, r, namespace, name)
}

// bindPod sets the claims for a pod and, if the pod is on a node, for that node. The latter are only information for
// readers of the token.
func (b *boundClaims) bindPod(ctx context.Context, a registry.Access, name string) (types.UID, error) {
	obj, err := get(ctx, a, pods, b.Namespace, name)
	if err != nil {
		return "", err
	}
	pod := obj.(*corev1.Pod)
	if pod.Spec.ServiceAccountName != b.Account.Name {
		return "", kerrors.NewBadRequest(
			fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.",
				b.Account.Name))
	}
	b.Pod = &reference{pod.Name, string(pod.UID)}
	if node := pod.Spec.NodeName; node != "" {
		b.Node, _, err = referenceTo(ctx, a, nodes, "", node)
		switch {
		case kerrors.IsNotFound(err):
			b.Node = &reference{Name: node}
		case err != nil:
			return "", kerrors.NewInternalError(err)
		}
	}
	return pod.UID, nil
}

// issue returns the signed token.
func (i *Issuer) issue(
	ctx context.Context, req *authenticationv1.TokenRequest, b boundClaims, id string, now time.Time,
) (string, error) {
	asked := time.Duration(*req.Spec.ExpirationSeconds) * time.Second
	life := asked
	if i.Extend && b.Pod != nil && asked == MountedLife && i.ownAudiences(req.Spec.Audiences) {
		life = min(ExtendedLife, cmp.Or(i.MostExtended, ExtendedLife))
		b.WarnAfter = jwt.NewNumericDate(now.Add(asked))
	}
	c := &claims{
		Claims: jwt.Claims{
			Issuer: i.Name, Subject: UserName(req.Namespace, req.Name), Audience: req.Spec.Audiences, ID: id,
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(life)),
		},
		Kubernetes: b,
	}
	payload, err := json.Marshal(issued{c, req.Spec.Audiences})
	if err != nil {
		return "", err
	}
	return i.Keys.Sign(ctx, payload)
}

// issued is the claims of a token as kube-apiserver writes them: a single audience is a list too.
type issued struct {
	*claims
	Audience []string `json:"aud"`
}

// ownAudiences reports whether all audiences are the API server's own.
func (i *Issuer) ownAudiences(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(audience string) bool { return !slices.Contains(i.Audiences, audience) })
}
