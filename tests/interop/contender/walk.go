package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// answers counts the answers of each content type, and fails for one that is not protobuf.
type answers struct {
	next  http.RoundTripper
	count map[string]int
}

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil {
		content := response.Header.Get("Content-Type")
		a.count[content]++
		if !strings.HasPrefix(content, protobuf) {
			err = fmt.Errorf("%s %s was answered with %d %s", request.Method, request.URL, response.StatusCode, content)
		}
	}
	return response, err
}

// walk takes typed objects through every verb with protobuf in both directions, and checks what comes back.
func walk(config *rest.Config, namespace string) {
	config = rest.CopyConfig(config)
	config.ContentType = protobuf
	// Nothing else is accepted.
	config.AcceptContentTypes = protobuf
	seen := &answers{count: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	client, err := kubernetes.NewForConfig(config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	events := watched(ctx, client, namespace)
	maps(ctx, client, namespace)
	events("ADDED one", "MODIFIED one", "MODIFIED one", "DELETED one")
	deployments(ctx, client, namespace)
	others(ctx, client, namespace)
	objects, err := metadata.NewForConfig(metadata.ConfigFor(config))
	check(err)
	onlyMetadata(ctx, client, objects, namespace)
	for content, count := range seen.count {
		fmt.Println(count, content)
	}
	fmt.Println("walked")
}

// watched begins a watch with initial events, and returns a function that checks what came after them.
func watched(ctx context.Context, client kubernetes.Interface, namespace string) func(...string) {
	all := true
	seconds := int64(60)
	stream, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &all, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, LabelSelector: "walk",
	})
	check(err)
	bookmark := <-stream.ResultChan()
	marked, ok := bookmark.Object.(*corev1.ConfigMap)
	expect(bookmark.Type == watch.Bookmark && ok, bookmark)
	expect(marked.Annotations[metav1.InitialEventsAnnotationKey] == "true" && marked.ResourceVersion != "", marked)
	return func(expected ...string) {
		for _, text := range expected {
			event := <-stream.ResultChan()
			// A server may send bookmarks at any time.
			for event.Type == watch.Bookmark {
				event = <-stream.ResultChan()
			}
			object, ok := event.Object.(*corev1.ConfigMap)
			expect(ok, event)
			expect(fmt.Sprint(event.Type, " ", object.Name) == text, event.Type, object)
		}
		stream.Stop()
		// Where versions of the past are gone, the server ends the watch with an error that is a Status.
		seconds := int64(1)
		old, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{
			ResourceVersion: "1", TimeoutSeconds: &seconds,
		})
		if err != nil {
			expect(apierrors.IsResourceExpired(err) || apierrors.IsGone(err), err)
			return
		}
		event := <-old.ResultChan()
		if event.Type == watch.Error {
			status, ok := event.Object.(*metav1.Status)
			expect(ok && status.Code == http.StatusGone, event)
		}
		old.Stop()
	}
}

func maps(ctx context.Context, client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	labels := map[string]string{"walk": "yes"}
	data := map[string]string{"text": "ä\n", "empty": ""}
	binary := map[string][]byte{"bytes": {0, 255}, "none": {}}
	sent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: labels}, Data: data, BinaryData: binary}
	made, err := maps.Create(ctx, sent, metav1.CreateOptions{})
	check(err)
	expect(made.Name == "one" && made.UID != "" && !made.CreationTimestamp.IsZero(), made)
	_, err = maps.Create(ctx, sent, metav1.CreateOptions{})
	expect(apierrors.IsAlreadyExists(err), err)
	read, err := maps.Get(ctx, "one", metav1.GetOptions{})
	check(err)
	expect(fmt.Sprint(read.Data) == fmt.Sprint(data) && len(read.BinaryData["bytes"]) == 2, read)
	_, err = maps.Get(ctx, "absent", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err), err)
	status := err.(apierrors.APIStatus).Status()
	expect(status.Details != nil && status.Details.Kind == "configmaps" && status.Details.Name == "absent", status)
	read.Data["more"] = "1"
	updated, err := maps.Update(ctx, read, metav1.UpdateOptions{})
	check(err)
	expect(updated.Data["more"] == "1" && updated.ResourceVersion != read.ResourceVersion, updated)
	_, err = maps.Update(ctx, read, metav1.UpdateOptions{})
	expect(apierrors.IsConflict(err), err)
	patch, err := json.Marshal(map[string]any{"data": map[string]any{"more": nil, "patched": "1"}})
	check(err)
	patched, err := maps.Patch(ctx, "one", types.MergePatchType, patch, metav1.PatchOptions{})
	check(err)
	_, kept := patched.Data["more"]
	expect(!kept && patched.Data["patched"] == "1", patched)
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "walk=yes"})
	check(err)
	expect(len(list.Items) == 1 && list.Items[0].UID == made.UID && list.ResourceVersion != "", list)
	check(maps.Delete(ctx, "one", *metav1.NewPreconditionDeleteOptions(string(made.UID))))
	list, err = maps.List(ctx, metav1.ListOptions{LabelSelector: "walk=yes"})
	check(err)
	expect(len(list.Items) == 0, list)
}

func deployments(ctx context.Context, client kubernetes.Interface, namespace string) {
	deployments := client.AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "walk"}
	replicas := int32(0)
	pod := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "image:1",
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")},
		}},
	}}}
	sent := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "walk"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
	made, err := deployments.Create(ctx, sent, metav1.CreateOptions{})
	check(err)
	container := made.Spec.Template.Spec.Containers[0]
	expect(*made.Spec.Replicas == 0 && made.Generation == 1, made)
	expect(container.Resources.Limits.Cpu().MilliValue() == 100, container)
	expect(container.LivenessProbe.HTTPGet.Port.StrVal == "http", container)
	scale, err := deployments.GetScale(ctx, "walk", metav1.GetOptions{})
	check(err)
	expect(scale.Spec.Replicas == 0, scale)
	scale, err = deployments.UpdateScale(ctx, "walk", &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "walk", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 2},
	}, metav1.UpdateOptions{})
	check(err)
	expect(scale.Spec.Replicas == 2, scale)
	read, err := deployments.Get(ctx, "walk", metav1.GetOptions{})
	check(err)
	read.Status.Replicas = 2
	read.Status.ObservedGeneration = read.Generation
	read, err = deployments.UpdateStatus(ctx, read, metav1.UpdateOptions{})
	check(err)
	expect(read.Status.Replicas == 2 && *read.Spec.Replicas == 2, read)
	invalid := sent.DeepCopy()
	invalid.Name = "Not A Name"
	_, err = deployments.Create(ctx, invalid, metav1.CreateOptions{})
	expect(apierrors.IsInvalid(err) && len(err.(apierrors.APIStatus).Status().Details.Causes) > 0, err)
	check(deployments.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	_, err = deployments.Get(ctx, "walk", metav1.GetOptions{})
	expect(apierrors.IsNotFound(err), err)
}

func others(ctx context.Context, client kubernetes.Interface, namespace string) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "walk"}, Data: map[string][]byte{"k": []byte("v")}}
	made, err := client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	check(err)
	expect(string(made.Data["k"]) == "v" && made.Type == corev1.SecretTypeOpaque, made)
	check(client.CoreV1().Secrets(namespace).Delete(ctx, "walk", metav1.DeleteOptions{}))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "walk"}}
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	check(err)
	seconds := int64(600)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "walk", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	check(err)
	expect(token.Status.Token != "" && !token.Status.ExpirationTimestamp.IsZero(), token)
	reviewed, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	check(err)
	expect(reviewed.Status.UserInfo.Username != "", reviewed)
}

func onlyMetadata(ctx context.Context, client kubernetes.Interface, objects metadata.Interface, namespace string) {
	kind := corev1.SchemeGroupVersion.WithResource("configmaps")
	maps := client.CoreV1().ConfigMaps(namespace)
	sent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: map[string]string{"walk": "meta"}}}
	made, err := maps.Create(ctx, sent, metav1.CreateOptions{})
	check(err)
	one, err := objects.Resource(kind).Namespace(namespace).Get(ctx, "two", metav1.GetOptions{})
	check(err)
	expect(one.UID == made.UID && one.Labels["walk"] == "meta", one)
	list, err := objects.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "walk=meta"})
	check(err)
	expect(len(list.Items) == 1 && list.Items[0].UID == made.UID, list)
	stream, err := objects.Resource(kind).Namespace(namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "walk=meta"})
	check(err)
	event := <-stream.ResultChan()
	watched, ok := event.Object.(*metav1.PartialObjectMetadata)
	expect(ok && event.Type == watch.Added && watched.UID == made.UID, event)
	stream.Stop()
	check(objects.Resource(kind).Namespace(namespace).Delete(ctx, "two", metav1.DeleteOptions{}))
}

func expect(holds bool, seen ...any) {
	if !holds {
		panic(fmt.Sprintf("unexpected: %+v", seen))
	}
}
