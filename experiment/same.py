from measure46 import *
d = pickle.loads((W/'real_put.pkl').read_bytes()); n = 182
m=None
c = {k: np.array([x.donor for x in d['key'][k][1]]) for k in (1,2,3)}
for a,b in ((1,2),(1,3),(2,3)):
    print('same donor', np.mean(c[a]%n==c[b]%n), 'first in orders', np.mean([d['key'][a][2][i][0]==d['key'][b][2][i][0] for i in range(72)]))
print('distinct donors', [len(set((x%n).tolist())) for x in c.values()], 'tries', [np.mean([d['key'][k][2][i].index(d['key'][k][1][i].donor) for i in range(72)]) for k in (1,2,3)])
