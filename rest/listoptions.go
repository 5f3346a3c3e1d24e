package rest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/apierr"
)

// listOptions are the options of a list or watch, as sent.
type listOptions struct {
	metav1.ListOptions
	// revision is ResourceVersion as a number; 0 also when empty.
	revision int64
}

// parseListOptions reads the query parameters (ListOptions of the API
// conventions).
func parseListOptions(r *http.Request) (listOptions, error) {
	var o listOptions
	values, err := parseQuery(r)
	if err != nil {
		return o, err
	}
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&values, &o.ListOptions, nil); err != nil {
		return o, kerrors.NewBadRequest(err.Error())
	}
	return o, nil
}

func parseQuery(r *http.Request) (url.Values, error) {
	// A broken pair is left out, as the reference does.
	values, _ := url.ParseQuery(r.URL.RawQuery)
	return values, nil
}

// validate checks the combination of options, with the reference's words.
func (o *listOptions) validate(watch bool) error {
	var errs field.ErrorList
	match := field.NewPath("resourceVersionMatch")
	if o.ResourceVersionMatch != "" || watch && o.Continue != "" {
		errs = append(errs, o.validateMatch(match, watch)...)
	}
	if o.SendInitialEvents != nil {
		switch {
		case !watch:
			errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
		case o.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan:
			errs = append(errs, field.Forbidden(match, fmt.Sprintf("sendInitialEvents requires setting resourceVersionMatch to %s", metav1.ResourceVersionMatchNotOlderThan)))
		}
	}
	if len(errs) > 0 {
		return kerrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

// validateMatch checks resourceVersionMatch.
func (o *listOptions) validateMatch(match *field.Path, watch bool) (errs field.ErrorList) {
	rvm := o.ResourceVersionMatch
	supported := []string{string(metav1.ResourceVersionMatchExact), string(metav1.ResourceVersionMatchNotOlderThan), ""}
	switch {
	case watch:
		supported = []string{string(metav1.ResourceVersionMatchNotOlderThan)}
		if rvm != "" && o.SendInitialEvents == nil {
			errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
		}
	case o.ResourceVersion == "":
		errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
	}
	if o.Continue != "" {
		errs = append(errs, field.Forbidden(match, "resourceVersionMatch is forbidden when continue is provided"))
	}
	if rvm != "" && !slices.Contains(supported, string(rvm)) {
		errs = append(errs, field.NotSupported(match, rvm, supported))
	}
	if rvm == metav1.ResourceVersionMatchExact && o.ResourceVersion == "0" {
		errs = append(errs, field.Forbidden(match, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
	}
	return errs
}

// parseVersion reads a resourceVersion parameter of a get or list.
func parseVersion(rv string) (int64, error) {
	v, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return 0, kerrors.NewBadRequest("invalid resource version: " + versionError(rv, err).Error())
	}
	return int64(v), nil
}

// parseWatchVersion reads a resourceVersion parameter of a watch or get. The
// reference answers 500 to a malformed one.
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

// continueToken is where the next page begins. Its encoding is the reference's:
// clients must not look into it, but tokens may cross servers of both kinds.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	// Start is the first key of the page, below the prefix that was listed.
	Start string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

// inconsistent as a token's revision continues at the latest state.
const inconsistent = -1

func (t continueToken) encode() string {
	t.Version = continueVersion
	text, _ := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(text)
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
		// The reference's message names its own type.
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
