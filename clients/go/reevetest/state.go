package reevetest

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// Snapshot keeps the objects and custom kinds under a name, in place of a former snapshot of that name.
func (s *Server) Snapshot(ctx context.Context, name string) error {
	return s.call(ctx, http.MethodPut, "snapshots/"+url.PathEscape(name), nil, nil)
}

// DeleteSnapshot removes a snapshot.
func (s *Server) DeleteSnapshot(ctx context.Context, name string) error {
	return s.call(ctx, http.MethodDelete, "snapshots/"+url.PathEscape(name), nil, nil)
}

// Restore brings the objects and custom kinds back to a snapshot, and returns how many objects were written or removed for that.
// Clients see writes: watches go on, and caches follow.
func (s *Server) Restore(ctx context.Context, name string) (int, error) {
	return s.goBack(ctx, "snapshots/"+url.PathEscape(name)+"/restore")
}

// Reset brings the server back to its state after the start, without rules and with an empty log of requests. Snapshots and the clock
// stay.
func (s *Server) Reset(ctx context.Context) error {
	_, err := s.goBack(ctx, "reset")
	return err
}

func (s *Server) goBack(ctx context.Context, path string) (int, error) {
	var answer struct {
		Written int `json:"written"`
	}
	err := s.call(ctx, http.MethodPost, path, nil, &answer)
	return answer.Written, err
}

// ResetAfter resets the server at the end of the test, for tests that share a server. Clean-ups that were registered later, such as
// the end of a manager, run before.
func (s *Server) ResetAfter(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		// The context of the test has ended.
		ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
		defer cancel()
		for {
			err := s.Reset(ctx)
			if err == nil {
				return
			}
			if isRefusal(err) || ctx.Err() != nil {
				t.Error(err)
				return
			}
			// It may be an outage.
			select {
			case <-ctx.Done():
			case <-time.After(retryAfter):
			}
		}
	})
}

type clock struct {
	Now time.Time `json:"now"`
}

// Now is the time of the server's clock.
func (s *Server) Now(ctx context.Context) (time.Time, error) {
	var answer clock
	err := s.call(ctx, http.MethodGet, "clock", nil, &answer)
	return answer.Now, err
}

// Advance sets the server's clock forward, and returns its time. Tokens, certificates, Events and history become older; timers of open
// requests and the clocks of clients do not move.
func (s *Server) Advance(ctx context.Context, by time.Duration) (time.Time, error) {
	var answer clock
	err := s.call(ctx, http.MethodPost, "clock/advance", seconds(by), &answer)
	return answer.Now, err
}

// Compact compacts the history up to and including a version, as etcd does every few minutes; "" is all. Pages and reads of the past
// get 410, and watches resume.
func (s *Server) Compact(ctx context.Context, resourceVersion string) error {
	return s.call(ctx, http.MethodPost, "history/compact", upTo(resourceVersion), nil)
}

// ForgetHistory drops the history up to and including a version; "" is all. Watches that start from an older version get 410, too.
// Open watches go on.
func (s *Server) ForgetHistory(ctx context.Context, resourceVersion string) error {
	return s.call(ctx, http.MethodPost, "history/forget", upTo(resourceVersion), nil)
}

func upTo(resourceVersion string) map[string]string {
	if resourceVersion == "" {
		return map[string]string{}
	}
	return map[string]string{"resourceVersion": resourceVersion}
}
