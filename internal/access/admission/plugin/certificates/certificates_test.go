package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/admissiontest"
	"github.com/keelson-dev/keelson/internal/access/auth/authz"
	"github.com/keelson-dev/keelson/internal/machinery/request"
)

// permits is an authorizer that allows these requests, each written "verb signer".
type permits map[string]error

func (p permits) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.User.Name != "u" || !a.Info.IsResource() || a.Info.Group != "certificates.k8s.io" ||
		a.Info.Resource != "signers" {
		return authz.NoOpinion, "", errors.New("asked for something else")
	}
	if err, ok := p[a.Info.Verb+" "+a.Info.Name]; ok {
		return authz.Allow, "", err
	}
	return authz.NoOpinion, "", nil
}

const signer = "example.com/serving"

func csr(signer string) *certificatesv1.CertificateSigningRequest {
	r := &certificatesv1.CertificateSigningRequest{}
	r.Name, r.Spec.SignerName = "r", signer
	return r
}

// update returns the attributes of a change of a subresource from old. The new object names another signer.
func update(subresource string, change func(*certificatesv1.CertificateSigningRequest)) *admission.Attributes {
	changed := csr("other.example/signer")
	change(changed)
	a := admissiontest.Change(resource, changed, csr(signer))
	a.Subresource = subresource
	return a
}

func TestDecidingNeedsPermissionForTheSigner(t *testing.T) {
	nothing := func(*certificatesv1.CertificateSigningRequest) {}
	certificate := func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("c") }
	condition := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue},
		}
	}
	user := request.WithUser(t.Context(), &request.User{Name: "u"})
	const approvalRefused = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to ` +
		`approve requests with signerName "example.com/serving"`
	const signingRefused = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to ` +
		`sign requests with signerName "example.com/serving"`
	for name, c := range map[string]struct {
		permits permits
		in      *admission.Attributes
		want    string
	}{
		"approval":            {nil, update("approval", condition), approvalRefused},
		"approval of nothing": {nil, update("approval", nothing), approvalRefused},
		"approval, signer":    {permits{"approve example.com/serving": nil}, update("approval", condition), ""},
		"approval, domain":    {permits{"approve example.com/*": nil}, update("approval", condition), ""},
		"approval, the client's signer": {
			permits{"approve other.example/signer": nil, "approve other.example/*": nil}, update("approval", condition),
			approvalRefused,
		},
		"approval, another verb": {
			permits{"sign example.com/serving": nil}, update("approval", condition), approvalRefused,
		},
		"approval, in doubt": {
			permits{"approve example.com/serving": errors.New("half")}, update("approval", condition), approvalRefused,
		},
		"signing":              {nil, update("status", certificate), signingRefused},
		"signing, a condition": {nil, update("status", condition), signingRefused},
		"signing nothing":      {nil, update("status", nothing), ""},
		"signing, signer":      {permits{"sign example.com/serving": nil}, update("status", certificate), ""},
		"signing, domain":      {permits{"sign example.com/*": nil}, update("status", condition), ""},
		"signing, another verb": {
			permits{"approve example.com/serving": nil}, update("status", certificate), signingRefused,
		},
		"the request itself": {nil, update("", certificate), ""},
	} {
		chain := admission.NewChain(nil, Approval(c.permits), Signing(c.permits))
		err := chain.Validate(user, c.in)
		if got := message(err); got != c.want || err != nil && !kerrors.IsForbidden(err) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if err := admission.NewChain(nil, Approval(permits{}), Signing(permits{})).Validate(
		t.Context(), update("approval", condition),
	); err != nil {
		t.Errorf("the server itself: %v", err)
	}
}

// TestPodSigning checks who may change the status of a PodCertificateRequest, in which the signer answers.
func TestPodSigning(t *testing.T) {
	old := &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec:       certificatesv1beta1.PodCertificateRequestSpec{SignerName: "example.com/serving"},
	}
	denied := old.DeepCopy()
	denied.Status.Conditions = []metav1.Condition{{Type: "Denied", Status: metav1.ConditionTrue}}
	user := request.WithUser(t.Context(), &request.User{Name: "u"})
	for name, c := range map[string]struct {
		permits permits
		object  *certificatesv1beta1.PodCertificateRequest
		want    string
	}{
		"nothing changes": {nil, old.DeepCopy(), ""},
		"no permission": {permits{"approve example.com/serving": nil}, denied, `PodCertificateRequest.certificates.k8s.io ` +
			`"r" is invalid: spec.signerName: Forbidden: User "u" is not permitted to "sign" for signer "example.com/serving"`},
		"signer": {permits{"sign example.com/serving": nil}, denied, ""},
		"domain": {permits{"sign example.com/*": nil}, denied, ""},
	} {
		a := admissiontest.Change(podResource, c.object, old)
		a.Subresource = "status"
		a.Stored.Kind = certificatesv1beta1.SchemeGroupVersion.WithKind("PodCertificateRequest")
		err := admission.NewChain(nil, PodSigning(c.permits)).Validate(user, a)
		if got := message(err); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestAttest checks who may change the ClusterTrustBundle of a signer, because workloads trust its certificates.
func TestAttest(t *testing.T) {
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/serving", TrustBundle: "a"},
	}
	owned, changed, without := bundle.DeepCopy(), bundle.DeepCopy(), bundle.DeepCopy()
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "o"}}
	changed.Spec.TrustBundle, without.Spec.SignerName = "b", ""
	user := request.WithUser(t.Context(), &request.User{Name: "u"})
	const refused = `clustertrustbundles.certificates.k8s.io "r" is forbidden: user not permitted to attest for ` +
		`signerName "example.com/serving"`
	for name, c := range map[string]struct {
		permits permits
		in      *admission.Attributes
		want    string
	}{
		"create":                  {permits{"sign example.com/serving": nil}, admissiontest.Creation(bundleResource, bundle), refused},
		"create, signer":          {permits{"attest example.com/serving": nil}, admissiontest.Creation(bundleResource, bundle), ""},
		"create, domain":          {permits{"attest example.com/*": nil}, admissiontest.Creation(bundleResource, bundle), ""},
		"create without a signer": {nil, admissiontest.Creation(bundleResource, without), ""},
		"update":                  {nil, admissiontest.Change(bundleResource, changed, bundle), refused},
		"garbage collection":      {nil, admissiontest.Change(bundleResource, owned, bundle), ""},
	} {
		if got := message(admission.NewChain(nil, Attest(c.permits)).Validate(user, c.in)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestCertificatesOfSystemMastersAreRefused(t *testing.T) {
	const refused = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: use of ` +
		`kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`
	for name, c := range map[string]struct {
		signer string
		groups []string
		want   string
	}{
		"administrators":    {certificatesv1.KubeAPIServerClientSignerName, []string{"a", "system:masters"}, refused},
		"others":            {certificatesv1.KubeAPIServerClientSignerName, []string{"a"}, ""},
		"of another signer": {signer, []string{"system:masters"}, ""},
	} {
		r := csr(c.signer)
		r.Spec.Request = encodedRequest(t, c.groups)
		if got := message(SubjectRestriction().Validate(t.Context(), admissiontest.Creation(resource, r))); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	broken := csr(certificatesv1.KubeAPIServerClientSignerName)
	broken.Spec.Request = []byte("x")
	const want = `certificatesigningrequests.certificates.k8s.io "r" is forbidden: failed to parse CSR: PEM block type ` +
		`must be CERTIFICATE REQUEST`
	if got := message(SubjectRestriction().Validate(t.Context(), admissiontest.Creation(resource, broken))); got != want {
		t.Errorf("got %q", got)
	}
	if err := SubjectRestriction().Validate(t.Context(), admissiontest.Change(resource, broken, broken)); err != nil {
		t.Errorf("an update: %v", err)
	}
}

func encodedRequest(t *testing.T, groups []string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "n", Organization: groups}}, key,
	)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
