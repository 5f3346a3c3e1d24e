package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/smithy-go"
)

// errNotS3 is the error of an answer that no S3 service gives.
var errNotS3 = errors.New("the answer is not that of an S3 service: check --backup-s3-endpoint, and whether a proxy answers in its place")

// credentialsError is the error of finding credentials.
type credentialsError struct{ error }

func (e *credentialsError) Unwrap() error { return e.error }

// apiCode returns the HTTP status and the code of the error of an S3 service; 0 and "" if err is none.
func apiCode(err error) (status int, code string) {
	if r, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = r.HTTPStatusCode()
	}
	if a, ok := errors.AsType[smithy.APIError](err); ok {
		code = a.ErrorCode()
	}
	return status, code
}

// notFound reports whether an error says that an object, and not the bucket, does not exist.
func notFound(err error) bool {
	_, code := apiCode(err)
	return code == "NoSuchKey"
}

// advice is what an operator can do, by the code of an error.
var advice = []struct {
	codes []string
	text  string
}{
	{
		[]string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken"},
		"the credentials have expired: renew them, and write them where they are (a changed file is read within five minutes)",
	},
	{
		[]string{"InvalidAccessKeyId", "XAdminUserNotFound"}, // the second one is versitygw's
		"the service does not know the access key: check AWS_ACCESS_KEY_ID or the shared credentials file",
	},
	{
		[]string{"SignatureDoesNotMatch"},
		"the secret key is wrong, or a proxy changes the requests: check AWS_SECRET_ACCESS_KEY or the shared credentials file",
	},
	{[]string{"RequestTimeTooSkewed"}, "the clock of this machine is wrong: set it"},
	{[]string{"NoSuchBucket"}, "there is no such bucket: create it, or correct its name"},
	{
		[]string{
			"PermanentRedirect", "TemporaryRedirect", "Redirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
			"MovedPermanently",
		},
		"the bucket is in another region, or has another endpoint: check --backup-s3-region and --backup-s3-endpoint",
	},
	{
		[]string{"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "XMinioAdminBucketQuotaExceeded"},
		"the bucket is full: delete something, or raise its quota",
	},
	{[]string{"SlowDown", "SlowDownWrite", "SlowDownRead", "TooManyRequests"}, "the service limits the rate of requests, or is overloaded"},
	{
		[]string{"AccessDenied", "AllAccessDisabled", "AccountProblem", "Forbidden"},
		"the credentials do not allow this: allow s3:ListBucket of the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and " +
			"s3:AbortMultipartUpload of its objects",
	},
}

// explain returns an error with a message for operators. It has no text of the service, which could be anything, also the credentials
// that the request had; and none of a program that gives credentials. A nil error stays nil.
func explain(err error) error {
	if _, done := errors.AsType[*explained](err); done || err == nil {
		return err
	}
	status, code := apiCode(err)
	if notFound(err) {
		return ErrNotFound
	}
	if text := connectionProblem(err); text != "" {
		return &explained{text, err}
	}
	_, unreadable := errors.AsType[*smithy.DeserializationError](err)
	switch {
	case unreadable, status == http.StatusOK && code == "":
		return &explained{errNotS3.Error(), err}
	case status == 0 && code == "":
		return err
	}
	text := fmt.Sprintf("the service answers with the status %d", status)
	if code != "UnknownError" && validCode(code) {
		text += " and the code " + code
	}
	if a := adviceFor(status, code); a != "" {
		text += ": " + a
	}
	return &explained{text, err}
}

// validCode reports whether a code is one of S3, which are letters. Another one could have anything.
func validCode(code string) bool {
	const longest, letters = 64, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return code != "" && len(code) <= longest && strings.Trim(code, letters) == ""
}

func adviceFor(status int, code string) string {
	for _, a := range advice {
		if slices.Contains(a.codes, code) {
			return a.text
		}
	}
	switch {
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return adviceFor(0, "AccessDenied")
	case status >= http.StatusMultipleChoices && status < http.StatusBadRequest:
		return adviceFor(0, "PermanentRedirect")
	case status >= http.StatusInternalServerError:
		return "the service has a fault, or is overloaded"
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return "check --backup-s3-endpoint"
	}
	return ""
}

// connectionProblem returns the message of an error that is not an answer of the service, "" of another one.
func connectionProblem(err error) string {
	if c, ok := errors.AsType[*credentialsError](err); ok {
		text := "there are no credentials: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a shared credentials file, a web identity " +
			"token, or a role of the machine"
		if _, ok := errors.AsType[*processcreds.ProviderError](c); ok {
			return text + " (credential_process of the shared file has failed)"
		}
		return text + fmt.Sprintf(" (%v)", c.error)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "the service did not answer in time: " + context.DeadlineExceeded.Error()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("the connection made no progress for %v", stalled)
	}
	if n, ok := errors.AsType[*net.OpError](err); ok && n.Op == "dial" {
		return "the service cannot be reached: " + n.Error()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		return "the connection has failed: " + u.Err.Error()
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection has failed: " + io.ErrUnexpectedEOF.Error()
	}
	return ""
}

// explained is an error with another message.
type explained struct {
	text string
	error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.error }
