package rest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/apierr"
)

// listOptions are the options of a list or watch, as sent.
type listOptions struct{ metav1.ListOptions }

// parseListOptions reads the query parameters (ListOptions of the API
// conventions).
func parseListOptions(r *http.Request) (listOptions, error) {
	var o listOptions
	// A broken pair is left out, as kube-apiserver does.
	values, _ := url.ParseQuery(r.URL.RawQuery)
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&values, &o.ListOptions, nil); err != nil {
		return o, kerrors.NewBadRequest(err.Error())
	}
	return o, nil
}

// validate checks the combination of options.
func (o *listOptions) validate(watch bool) error {
	if o.ResourceVersionMatch == "" && o.Continue == "" && o.SendInitialEvents == nil {
		return nil
	}
	options := internalversion.ListOptions{
		Watch: watch, ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch,
		Continue: o.Continue, SendInitialEvents: o.SendInitialEvents,
	}
	// A watch without a resource version counts as one with sendInitialEvents.
	internalversion.SetListOptionsDefaults(&options, true)
	if errs := internalvalidation.ValidateListOptions(&options, true); len(errs) > 0 {
		return kerrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// parseVersion reads a resourceVersion parameter of a list, or of a get of a kind for
// which kube-apiserver has no watch cache.
func parseVersion(rv string) (int64, error) {
	v, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return 0, kerrors.NewBadRequest("invalid resource version: " + versionError(rv, err).Error())
	}
	return int64(v), nil
}

// parseWatchVersion reads a resourceVersion parameter of a watch or get.
// kube-apiserver answers 500 to a malformed one.
func parseWatchVersion(rv string) (int64, error) {
	if rv == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return 0, apierr.New(http.StatusInternalServerError, "", versionError(rv, err).Error())
	}
	return int64(v), nil
}

func versionError(rv string, err error) error {
	return field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())
}

// continueToken is where the next page begins. It is encoded as kube-apiserver encodes
// it: clients must not look into it, but a client may take a token from one server to the
// other.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	// Start is the first key of the page, below the prefix that was listed.
	Start string `json:"start"`
}

// continueVersion is the version of the encoding. kube-apiserver writes and accepts only this one.
const continueVersion = "meta.k8s.io/v1"

// inconsistent is the revision of a token that continues the list at the latest state.
const inconsistent = -1

func (t continueToken) encode() string {
	t.Version = continueVersion
	text, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(text)
}

// from is the first key of the page below the resource's prefix; "" for no token.
func (t *continueToken) from(sel *selection) string {
	if t == nil {
		return ""
	}
	return sel.prefix() + t.Start
}

// parseContinue reads a continue parameter.
func parseContinue(text string) (continueToken, error) {
	var t continueToken
	bad := func(err error) (continueToken, error) {
		return t, kerrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return bad(err)
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		// kube-apiserver's message names its own type.
		return bad(errors.New(strings.Replace(err.Error(), "rest.continueToken", "storage.continueToken", 1)))
	}
	switch {
	case t.Version != continueVersion:
		return bad(fmt.Errorf("server does not recognize this encoded version %s", t.Version))
	case t.Revision == 0:
		return bad(fmt.Errorf("incorrect encoded start resourceVersion (version %s)", continueVersion))
	case t.Start == "":
		return bad(fmt.Errorf("encoded start key empty (version %s)", continueVersion))
	}
	// A key that walks up a path would leave the collection.
	key := t.Start
	if !strings.HasPrefix(key, "/") {
		key = "/" + key
	}
	if path.Clean(key) != key {
		return bad(errors.New(t.Start))
	}
	return t, nil
}
