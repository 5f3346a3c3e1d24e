// Package csrsigning signs approved CertificateSigningRequests for the signer kubernetes.io/kube-apiserver-client:
// client certificates that the server accepts. In kube-controller-manager, the
// certificatesigningrequest-signing-controller does this. It also signs for kubelets; this package does not.
//
// The rules of the signer are those of
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers. Admission refuses
// requests for the group system:masters.
package csrsigning

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"

	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/controller/workers"
	"github.com/keelson-dev/keelson/internal/machinery/activity"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

// firstDelay is the time after which a request is handled again after an error. The delay doubles up to maxDelay.
const firstDelay, maxDelay = 100 * time.Millisecond, time.Minute

// longest is the lifetime of a certificate if the request asks for no lifetime or for a longer one. It is the
// default of kube-controller-manager.
const longest = 365 * 24 * time.Hour

// failedReason is the reason of the condition of requests that cannot be signed.
const failedReason = "SignerValidationFailure"

var resource = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// Controller signs requests.
type Controller struct {
	Client *client.Client
	// Sign returns a certificate of a key, in PEM. The template has its names and usages.
	Sign func(template *x509.Certificate, key crypto.PublicKey, lifetime time.Duration) ([]byte, error)
	Log  *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Metrics counts what happens in the queue.
	Metrics workqueue.MetricsProvider
	// Activity has the work of the controller; nil records nothing.
	Activity *activity.Part
}

// Run works until ctx ends, or until following the requests fails.
func (c *Controller) Run(ctx context.Context) error {
	q := workers.New[string](workers.Options{
		Name: "certificate", FirstDelay: firstDelay, MaxDelay: maxDelay, Metrics: c.Metrics, Activity: c.Activity,
	})
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error {
		q.Run(ctx, 1, c.handle)
		return nil
	})
	tasks.Go(func() error { return c.follow(ctx, q) })
	if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// follow adds the requests that have to be signed to the queue.
func (c *Controller) follow(ctx context.Context, q *workers.Queue[string]) error {
	consider := func(o registry.Object) {
		if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok && waits(r) {
			q.Add(r.Name)
		}
	}
	revision, err := c.Client.List(ctx, client.ListRequest{Resource: resource}, func(o registry.Object) bool {
		consider(o)
		return true
	})
	if err != nil {
		return err
	}
	w, err := c.Client.Watch(ctx, client.WatchRequest{Resource: resource, From: revision})
	if err != nil {
		return err
	}
	defer w.Close()
	c.Activity.Started()
	for {
		changes, err := w.Next(ctx)
		if err != nil {
			return err
		}
		for _, change := range changes {
			if change.Type != watch.Deleted {
				consider(change.Object)
			}
		}
	}
}

// waits reports whether a request still has to be signed: it is for this signer and approved, and neither denied,
// signed nor failed.
func waits(r *certificatesv1.CertificateSigningRequest) bool {
	has := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(r.Status.Conditions,
			func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	return r.Spec.SignerName == certificatesv1.KubeAPIServerClientSignerName && len(r.Status.Certificate) == 0 &&
		has(certificatesv1.CertificateApproved) && !has(certificatesv1.CertificateDenied) && !has(certificatesv1.CertificateFailed)
}

// handle signs a request or gives it the condition Failed.
func (c *Controller) handle(ctx context.Context, name string) error {
	ref := client.Ref{Resource: resource, Name: name}
	_, err := c.Client.Update(ctx, client.UpdateRequest{Ref: ref, Subresource: "status", Change: func(o registry.Object) error {
		r := o.(*certificatesv1.CertificateSigningRequest)
		if !waits(r) {
			return nil
		}
		template, key, err := parse(&r.Spec)
		if err != nil {
			r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: failedReason, Message: err.Error(),
				LastUpdateTime: metav1.NewTime(c.Now()),
			})
			return nil
		}
		r.Status.Certificate, err = c.Sign(template, key, lifetime(&r.Spec))
		return err
	}})
	if err == nil || kerrors.IsNotFound(err) || ctx.Err() != nil {
		return nil
	}
	c.Log.Warn("cannot sign a CertificateSigningRequest; will try again", "name", name, "error", err)
	return err
}

// lifetime returns how long the certificate of a request is valid.
func lifetime(s *certificatesv1.CertificateSigningRequestSpec) time.Duration {
	if s.ExpirationSeconds == nil {
		return longest
	}
	return min(time.Duration(*s.ExpirationSeconds)*time.Second, longest)
}

// parse returns the certificate that a request asks for, and its key. Of the extensions in the request, only the
// alternative names are used. It fails if the request is not valid for the signer.
func parse(s *certificatesv1.CertificateSigningRequestSpec) (*x509.Certificate, crypto.PublicKey, error) {
	block, _ := pem.Decode(s.Request)
	if block == nil {
		return nil, nil, errors.New("the request is not in PEM format")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the request is not valid: %w", err)
	}
	usage, err := keyUsage(s.Usages)
	if err != nil {
		return nil, nil, err
	}
	return &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, EmailAddresses: request.EmailAddresses,
		IPAddresses: request.IPAddresses, URIs: request.URIs, BasicConstraintsValid: true,
		KeyUsage: usage, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, request.PublicKey, nil
}

// keyUsage returns the usages of a client's key. It fails for usages that the signer does not allow.
func keyUsage(usages []certificatesv1.KeyUsage) (x509.KeyUsage, error) {
	var found x509.KeyUsage
	client := false
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageClientAuth:
			client = true
		case certificatesv1.UsageDigitalSignature:
			found |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			found |= x509.KeyUsageKeyEncipherment
		default:
			return 0, fmt.Errorf("the usage %q is not allowed, only client auth, digital signature and key encipherment", u)
		}
	}
	if !client {
		return 0, errors.New("the usage client auth is missing")
	}
	return found, nil
}
