package main

import (
	"context"
	"errors"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// object is a type with labels.
type object interface {
	runtime.Object
	metav1.Object
}

// lock denies objects with the label `locked`.
type lock[T object] struct{}

func (lock[T]) ValidateCreate(_ context.Context, created T) (admission.Warnings, error) {
	if created.GetLabels()["locked"] == "true" {
		return nil, errors.New("the object is locked")
	}
	return nil, nil
}

func (l lock[T]) ValidateUpdate(ctx context.Context, _, updated T) (admission.Warnings, error) {
	return l.ValidateCreate(ctx, updated)
}

func (lock[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

// team adds the label `team`.
type team[T object] struct{}

func (team[T]) Default(_ context.Context, defaulted T) error {
	labels := defaulted.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["team"] = "a"
	defaulted.SetLabels(labels)
	return nil
}

// serveWebhooks serves the two handlers for Pods and Deployments, with controller-runtime's defaults, until the process
// is killed.
func serveWebhooks() (*report, error) {
	ctrl.SetLogger(logr.Discard())
	scheme := newScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	served := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: *port, CertDir: *certificates})
	served.Register("/validate--v1-pod", admission.WithValidator(scheme, lock[*corev1.Pod]{}))
	served.Register("/mutate--v1-pod", admission.WithDefaulter(scheme, team[*corev1.Pod]{}))
	served.Register("/validate-apps-v1-deployment", admission.WithValidator(scheme, lock[*appsv1.Deployment]{}))
	served.Register("/mutate-apps-v1-deployment", admission.WithDefaulter(scheme, team[*appsv1.Deployment]{}))
	return nil, served.Start(context.Background())
}
